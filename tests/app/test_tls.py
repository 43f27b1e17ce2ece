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
from patience import PATIENCE
from penstock.app.broker import connection, presence, server
from penstock.app.host.settings import load
from penstock.app.worker.celery import make_app
from penstock.profiling.base.errors import BackendError, UsageError
from system import program


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
    """Where a real broker is reached by TLS: the server in the wheel has none of its own."""
    home = tmp_path_factory.mktemp("tls")
    settings = load(home=home)
    settings.ensure_home()
    server.start(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "host.pem", authority / "host.key")
    try:
        with forwarding(context, str(server.socket_path(settings))) as port:
            yield port
    finally:
        server.stop(settings)


@contextmanager
def forwarding(context, path):
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
            inside = context.wrap_socket(way, server_side=True)
        except OSError:  # the client did not like the certificate
            way.close()
            return
        outside = socket.socket(socket.AF_UNIX)
        with closing(inside), closing(outside):
            outside.connect(path)
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
