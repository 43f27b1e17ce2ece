"""A broker behind sentinels: what its URL says, who refuses what, and where a client goes next."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading

import pytest
import redis
from flower.utils.broker import Broker
from patience import until
from penstock.app.broker import connection, presence, protocol, sentinels, server
from penstock.app.broker.transport import RedisTransport
from penstock.app.host.settings import load
from penstock.app.node.sessions.link import Link
from penstock.app.node.worker.celery import make_app
from penstock.base.errors import BackendError, UsageError
from penstock.base.urls import hide_password

from testkit.faults import sentinels as _sentinels

ONE = "sentinel://h:1/0?master_name=m"


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """A group that no test fails over."""
    with _sentinels.group(tmp_path_factory.mktemp("whole"), replicas=1) as found:
        yield found


@pytest.fixture
def failing(tmp_path):
    """A group of one test."""
    with _sentinels.group(tmp_path) as found:
        yield found


def asked(url):
    """Return what keeps a new client of ``url`` from a PING."""
    with pytest.raises(BackendError) as caught, connection.translate_errors(url):
        connection.connect(url).ping()
    return caught.value


# -- the URL -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "database"),
    [
        ("sentinel://:p%2Fw@a:1;sentinel://b/2?master_name=m", 2),
        ("sentinel://a:1;sentinel://:p%2Fw@b:26379/2?master_name=m", 2),
        ("sentinel://:p%2Fw@a:1/2;sentinel://:p%2Fw@b?master_name=m", 2),
        ("sentinel://:p%2Fw@a:1;sentinel://b?master_name=m", 0),
    ],
)
def test_database_and_password_may_be_written_once(url, database):
    address = sentinels.parse(url)
    assert address.sentinels == (("a", 1), ("b", 26379))
    assert (address.database, address.username, address.password) == (database, None, "p/w")
    # kombu takes both from the first address, and from another one when it goes on to that.
    again = f"sentinel://:p%2Fw@a:1/{database};sentinel://:p%2Fw@b:26379/{database}"
    assert address.for_celery == again


def test_celery_is_told_of_name_sentinels_and_certificates():
    query = "master_name=m&sentinel_username=s&sentinel_password=q%26&ssl=true&ssl_ca_certs=/ca.pem"
    made = make_app_without_file(f"sentinel://u:p@[::1]:1/3?{query}")
    options = made.conf.broker_transport_options
    tls = {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca.pem"}
    timeouts = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}
    theirs = {"username": "s", "password": "q&", "ssl": True}
    assert made.conf.broker_url == "sentinel://u:p@[::1]:1/3"
    assert made.conf.broker_use_ssl == tls
    assert options["master_name"] == "m"
    assert options["sentinel_kwargs"] == theirs | timeouts | tls


def make_app_without_file(url):
    """The app; the file of certificates is looked for by our own client alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.Path, "is_file", lambda _: True)
        return make_app(url)


@pytest.mark.parametrize(
    "url",
    [
        "sentinel://h:1/0",
        "sentinel://h:1/0?master_name=",
        "sentinel://?master_name=m",
        "sentinel://h:1/x?master_name=m",
        "sentinel://h:none/0?master_name=m",
        "sentinel://h:1;redis://i:1/0?master_name=m",
        "sentinel://h:1;i:1/0?master_name=m",
        "sentinel://h:1/0;sentinel://i:1/1?master_name=m",
        "sentinel://:s3cret@h:1;sentinel://:0ther@i:1/0?master_name=m",
        "sentinel://h:1/0?master_name=m&mastername=n",
        "sentinel://h:1/0?master_name=m;sentinel://i:1",
        "sentinel://h:1/0?master_name=m&ssl_cert_reqs=required",
    ],
)
def test_a_url_that_says_no_such_thing_is_refused_without_its_password(url):
    with pytest.raises(UsageError) as refused:
        sentinels.parse(load(broker=url).broker)
        if ";sentinel://i:1" in url:  # a name may hold anything
            raise UsageError(connection.connect(url) and "")
    assert "s3cret" not in str(refused.value)


def test_no_credentials_of_any_address_or_sentinel_are_shown():
    url = "sentinel://u:s3cret@a:1;sentinel://u:s3cret@b:2/0?master_name=m&sentinel_password=s3cret"
    shown = hide_password(f"{url}&sentinel_username=s3cret&ssl=true")
    assert "s3cret" not in shown
    assert "b:2/0?master_name=m" in shown


def test_others_load_nothing_of_it():
    program = (
        "import sys; from penstock.app.broker import connection;"
        " connection.connect('redis://h:1/0');"
        " print(*(name for name in sys.modules if name == 'penstock.app.broker.sentinels'))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b""


# -- who refuses ---------------------------------------------------------------------------------


def test_an_unknown_name_is_refused_with_those_that_are_known(servers):
    error = asked(servers.url(name="other"))
    assert re.search("master_name=other.*ours", str(error))
    assert not connection.may_pass(error)


@pytest.mark.parametrize("secret", [_sentinels.PASSWORD, _sentinels.THEIRS])
def test_a_wrong_password_at_either_level_is_refused(servers, secret):
    url = servers.url().replace(sentinels.quote(secret, safe=""), "wr0ng")
    error = asked(url)
    assert not connection.may_pass(error)
    assert "sentinel_password" in str(error)
    assert "wr0ng" not in str(error)


def test_sentinels_that_are_not_there_may_come_back():
    [port] = _sentinels.free_ports(1)
    assert connection.may_pass(asked(f"sentinel://127.0.0.1:{port}/0?master_name=m"))


def test_one_sentinel_that_answers_is_enough(servers):
    [port] = _sentinels.free_ports(1)
    url = servers.url(1).replace("sentinel://", f"sentinel://127.0.0.1:{port};sentinel://", 1)
    with connection.connect(url) as client:
        assert client.set("of", "ours")
        assert connection.server_of(client) == ("127.0.0.1", servers.primary())
    assert Link(url).address() == "127.0.0.1", "its own, on the way to the primary"
    with make_app(url).connection_for_read() as made:
        assert made.default_channel.client.get("of") == b"ours"
    with servers.client(servers.primary(), db=1) as direct:
        assert direct.get("of") == "ours"


def test_flower_counts_messages_with_the_same_options(servers):
    app = make_app(servers.url())
    with app.connection() as made:
        url = made.as_uri(include_password=True)
    options = {"broker_options": app.conf.broker_transport_options}

    async def count():
        seen = Broker(url, broker_use_ssl=app.conf.broker_use_ssl, **options)
        counts = await seen.queues(["nothing"])
        for each in seen.redis.connection_pool.sentinel_manager.sentinels:
            await each.aclose()  # Flower leaves them open
        return counts

    assert asyncio.run(count()) == [{"name": "nothing", "messages": 0}]


@pytest.mark.extension("doctor")
def test_doctor_names_the_primary_and_a_sentinel_that_is_silent(servers, tmp_path):
    from penstock.extensions.doctor.doctor import diagnose

    [port] = _sentinels.free_ports(1)
    url = servers.url().replace(";", f";sentinel://127.0.0.1:{port};", 1)
    settings = load(home=tmp_path, broker=url, devices="cpu:1x1")
    found = [each for each in diagnose(settings) if each.name == "broker's sentinels"]
    assert [each.grade for each in found] == ["ok", "warn"]
    assert f"127.0.0.1:{servers.primary()}" in found[0].what
    assert f"127.0.0.1:{port}" in found[1].what
    assert _sentinels.PASSWORD not in str(found)


# -- failovers -----------------------------------------------------------------------------------


def test_each_refusal_of_a_demoted_server_may_pass_and_closes_the_connection(failing):
    """Demote a server by hand: a sentinel would have it close its connections as well."""
    url, primary = failing.url(), failing.primary()
    client, blocked = connection.connect(url), connection.connect(url)
    client.set("a", 1)
    errors = []

    def wait():
        try:
            with connection.translate_errors(url):
                protocol.command(blocked, "BLPOP", "nothing", 0)
        except BackendError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    blocked.ping()
    waiting.start()
    with failing.client(primary) as direct:
        until(lambda: direct.info("clients")["blocked_clients"], "it waits")
        direct.replicaof("127.0.0.1", next(p for p in failing.data if p != primary))
    for command in (("SET", "a", 2), ("EVAL", "return redis.call('SET', 'a', 2)", 0)):
        with pytest.raises(BackendError) as caught, connection.translate_errors(url):
            protocol.execute(client, [command])
        assert connection.may_pass(caught.value), caught.value
        assert "not the primary" in str(caught.value) or "now a slave" in str(caught.value)
    waiting.join()
    assert all(map(connection.may_pass, errors)), errors
    assert len(errors) == 1

    before = connection.reconnections(client)
    with failing.client(primary) as direct:
        direct.replicaof("NO", "ONE")
    until(lambda: writes(client, url), "a primary takes writes")
    assert connection.reconnections(client) > before, "it has asked the sentinels again"


def writes(client, url):
    try:
        with connection.translate_errors(url):
            return client.set("a", 3)
    except BackendError as error:
        assert connection.may_pass(error), error
        return False


def test_after_a_failover_the_scheduler_opens_the_broker_again(failing, tmp_path):
    url = failing.url()
    transport = RedisTransport(url, b"k" * 32)
    transport.open()
    assert transport.survey([]).boot is not None
    assert transport.survey([]).boot is not None
    failing.fail_over()
    until(lambda: opened(transport), "it is opened")
    assert transport.survey([]).boot is not None
    # Also where the idle connection was closed, and no command has failed for that.
    transport._client.connection_pool.disconnect()
    with pytest.raises(BackendError, match="failed over"):
        transport.survey([])
    transport.open()
    assert transport.survey([]).boot is not None
    assert presence.is_served(connection.connect(url), url)
    assert server.connect(load(home=tmp_path, broker=url)).ping()


def opened(transport):
    try:
        transport.open()
    except BackendError as error:
        assert connection.may_pass(error), error
        return False
    return True


def test_kombu_leaves_a_server_that_is_not_the_primary(failing):
    app = make_app(failing.url())
    with app.connection_for_read() as made:
        client = made.default_channel.client
        client.ping()
        primary = failing.primary()
        with failing.client(primary) as direct:
            direct.replicaof("127.0.0.1", next(p for p in failing.data if p != primary))
        with pytest.raises(redis.ConnectionError):
            client.set("a", 1)
        assert issubclass(redis.ConnectionError, made.connection_errors)
