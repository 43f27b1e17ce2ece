"""A broker with TLS whose certificate is a private CA's: reached by what the URL says of the CA."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import subprocess
import threading
from contextlib import closing, contextmanager

import pytest
from flower.utils.broker import Broker
from machines.system import program
from patience import PATIENCE, until
from penstock.app.broker import connection, presence, server
from penstock.app.host.settings import load
from penstock.app.node.worker.celery import make_app
from penstock.base.errors import BackendError, UsageError

from testkit.faults import sentinels


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A folder with ``ca.pem``, and ``host.pem`` and ``host.key`` of 127.0.0.1 that it signed."""
    folder = tmp_path_factory.mktemp("ca")
    openssl = program("openssl", "openssl")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for words in (
        ("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Our CA"),
        ("req", *curve, "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=broker"),
        (
            *("x509", "-req", "-in", "host.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-extfile", "names", "-out", "host.pem"),
        ),
    ):
        subprocess.run(
            [openssl, *words], cwd=folder, check=True, capture_output=True, timeout=PATIENCE
        )
    return folder


@pytest.fixture(scope="module")
def port(authority, tmp_path_factory):
    """Yield a port where a real broker is reached by TLS, which the wheel's server lacks."""
    home = tmp_path_factory.mktemp("tls")
    settings = load(home=home)
    settings.ensure_home()
    server.start(settings)
    try:
        with forwarding(host(authority), str(server.socket_path(settings))) as port:
            yield port
    finally:
        server.stop(settings)


def host(authority):
    """The context of a host with the certificate that was signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "host.pem", authority / "host.key")
    return context


@contextmanager
def forwarding(context, at):
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            try:
                way, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            threading.Thread(target=serve, args=(way,), daemon=True).start()

    def serve(way):
        try:
            # A sentinel speaks in the clear to the server that its clients have by TLS.
            encrypted = way.recv(1, socket.MSG_PEEK) == b"\x16"
            inside = context.wrap_socket(way, server_side=True) if encrypted else way
        except OSError:  # the client did not like the certificate
            way.close()
            return
        outside = socket.socket(socket.AF_UNIX if isinstance(at, str) else socket.AF_INET)
        with closing(inside), closing(outside):
            outside.connect(at)
            back = threading.Thread(target=copy, args=(outside, inside), daemon=True)
            back.start()
            copy(inside, outside)
            outside.shutdown(socket.SHUT_RDWR)
            back.join(PATIENCE)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE)


def copy(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:  # either end is gone
        return


def url(port, ca=None, host="127.0.0.1", password=""):
    return f"rediss://{password}{host}:{port}/0{f'?ssl_ca_certs={ca}' if ca else ''}"


def test_with_the_ca_in_the_url_it_is_reached_by_client_and_celery(port, authority, tmp_path):
    known = url(port, authority / "ca.pem")
    with server.connect(load(home=tmp_path, broker=known)) as client:
        assert client.set("of", "ours")
    app = make_app(known)
    with app.connection_for_read() as connection:
        assert connection.default_channel.client.get("of") == b"ours"
    # Flower's page of the broker has its own client, which reads nothing of the URL but its host.
    seen = Broker(known, broker_options={}, broker_use_ssl=app.conf.broker_use_ssl)
    assert asyncio.run(seen.queues(["nothing"])) == [{"name": "nothing", "messages": 0}]


@pytest.mark.extension("doctor")
def test_without_it_both_refuse_and_what_to_do_is_said(port, tmp_path):
    from penstock.extensions.doctor.doctor import diagnose

    unknown = url(port, password=":s3cret@")
    hint = r"does not trust its certificate.*\?ssl_ca_certs="
    with pytest.raises(BackendError, match=hint) as caught:
        presence.fetch_installation(connection.connect(unknown), unknown)
    settings = load(home=tmp_path, broker=unknown, devices="cpu:1x1")
    found = {finding.name: finding for finding in diagnose(settings)}["broker"]
    assert found.grade == "fail"
    assert re.search(hint, found.what)
    assert "s3cret" not in f"{caught.value} {found}"
    with (
        make_app(unknown).connection_for_read() as made,
        pytest.raises(Exception, match="CERT"),
    ):
        made.ensure_connection(max_retries=1)


def test_a_name_that_is_not_in_the_certificate_is_refused_in_other_words(port, authority):
    other = url(port, authority / "ca.pem", host="localhost")
    with pytest.raises(
        BackendError, match="use a host name that is in the broker's certificate"
    ) as caught:
        presence.fetch_installation(connection.connect(other), other)
    assert "ssl_ca_certs=/path" not in str(caught.value)


def test_a_ca_under_a_relative_path_is_refused(authority, monkeypatch):
    """Services have working folders of their own."""
    monkeypatch.chdir(authority)
    with pytest.raises(UsageError, match=r"ssl_ca_certs = 'ca\.pem' is refused.*an absolute path"):
        connection.connect("rediss://127.0.0.1:1/0?ssl_ca_certs=ca.pem")


@pytest.mark.extension("doctor")
def test_a_ca_that_is_not_there_is_refused_by_the_name_of_its_file(port, tmp_path):
    from penstock.extensions.doctor.doctor import diagnose

    missing = tmp_path / "no.pem"
    settings = load(home=tmp_path, broker=url(port, missing), devices="cpu:1x1")
    with pytest.raises(UsageError, match=f"ssl_ca_certs = '{missing}' is refused"):
        server.connect(settings)
    found = {finding.name: finding for finding in diagnose(settings)}["broker"]
    assert (found.grade, str(missing) in found.what) == ("fail", True)


def test_sentinels_are_asked_by_tls_and_data_servers_reached_by_it(authority, tmp_path):
    with (
        sentinels.group(tmp_path, replicas=0) as servers,
        forwarding(host(authority), ("127.0.0.1", servers.sentinels[0])) as port,
        forwarding(host(authority), ("127.0.0.1", servers.primary())) as data,
    ):
        with servers.client(servers.sentinels[0]) as sentinel:
            sentinel.sentinel_monitor("tls", "127.0.0.1", data, 1)
            sentinel.sentinel_set("tls", "auth-pass", sentinels.PASSWORD)
        first, _, query = servers.url(name="tls").partition("?")
        secret = f"{first.partition('@')[0]}@127.0.0.1:{port}/0?{query}&ssl=true"
        known = f"{secret}&ssl_ca_certs={authority / 'ca.pem'}"
        with connection.connect(known) as client:
            until(lambda: answers(client, known), "the sentinel knows the primary")
            assert connection.server_of(client) == ("127.0.0.1", data)
            assert client.set("of", "ours")
        with make_app(known).connection_for_read() as made:
            assert made.default_channel.client.get("of") == b"ours"
        with pytest.raises(BackendError, match=r"does not trust its certificate") as caught:
            presence.is_served(connection.connect(secret), secret)
        assert not connection.may_pass(caught.value)
        assert sentinels.THEIRS not in str(caught.value)


def answers(client, url):
    try:
        with connection.translate_errors(url):
            return client.ping()
    except BackendError as error:
        assert connection.may_pass(error), error
        return False
