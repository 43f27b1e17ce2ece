"""A prefix of all keys and channels: nothing is written or read without it, on a real broker."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys

import pytest
import redis
from flower.utils.broker import Broker
from machines.network import answering_broker
from patience import until
from penstock.app.broker import connection, fitness, ownership, prefixed, protocol, sentinels
from penstock.app.broker.connection import BrokerUnfit
from penstock.app.broker.transport import RedisTransport
from penstock.app.common.ports import Effects
from penstock.app.host import broker_url
from penstock.app.node.worker.calls import Calls
from penstock.app.node.worker.celery import make_app
from penstock.base.errors import BackendError
from penstock.scheduler.model.decisions import Cut, Revoke
from redis.connection import Connection
from servers.worker_bench import KEY

PREFIX = "shop:"
OPTION = f"?global_keyprefix={PREFIX}"
USER, WORD = "penstock", "s3cret"


@pytest.fixture
def broker():
    """The URL of a broker without a prefix, and a client that sees all of its keys."""
    with answering_broker() as served:
        yield served


@pytest.fixture
def ours(broker):
    """A client of the same broker by its URL with a prefix."""
    with connection.connect(broker[0] + OPTION) as client:
        yield client


@pytest.mark.parametrize(
    ("url", "address", "prefix"),
    [
        ("redis://h/0", "redis://h/0", ""),
        ("redis://h/0?global_keyprefix=shop:", "redis://h/0", "shop:"),
        ("redis://h/0?global_keyprefix=a%26%3Ab&db=1", "redis://h/0?db=1", "a&:b"),
        (
            "rediss://h/0?ssl_cert_reqs=none&global_keyprefix=+",
            "rediss://h/0?ssl_cert_reqs=none",
            "+",
        ),
        (
            "sentinel://a;sentinel://b/2?global_keyprefix=s&master_name=m",
            "sentinel://a;sentinel://b/2?master_name=m",
            "s",
        ),
        (
            "redis+socket:///run/b.sock?virtual_host=3&global_keyprefix=s",
            "redis+socket:///run/b.sock?virtual_host=3",
            "s",
        ),
    ],
)
def test_a_url_says_its_prefix(url, address, prefix):
    assert broker_url.split_prefix(url) == (address, prefix)
    assert broker_url.refusal(url) is None
    assert broker_url.key_at(url, "penstock:calls") == f"{prefix}penstock:calls"
    # Nothing is left of it for a library that does not know it.
    client = connection.connect(url)
    assert "global_keyprefix" not in client.get_connection_kwargs()


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "a b",
        "a*",
        "a?",
        "[",
        "]",
        "a%5C",
        "%C3%BC",
        "a%0A",
        "a" * 65,
        "penstock:",
        "my-penstock:",
    ],
)
def test_a_prefix_that_may_not_be_is_refused(prefix):
    assert broker_url.refusal(f"redis://h/0?global_keyprefix={prefix}") == broker_url.PREFIXES


def test_the_table_knows_each_command_that_is_sent_and_no_other():
    for words in fitness._COMMANDS:
        sent = prefixed.named(PREFIX, words)
        flat = [*str(words[0]).split(), *words[1:]]
        own = (*fitness._PROBED, protocol.CALLS)
        assert sent == [PREFIX + word if word in own else word for word in flat]
    allowed = {word[1:].partition("|")[0].upper() for word in fitness._ALLOWED.split()}
    for command in allowed - {"@ALL", "EVALSHA", "XREAD", "XREADGROUP", "SCAN"}:
        assert command in prefixed._NAMES
    for words in (("KEYS", "*"), ("RENAME", "a", "b"), ("SCAN", 0), ("XREAD", "COUNT", 1)):
        with pytest.raises(RuntimeError):
            prefixed.named(PREFIX, words)


def test_scripts_name_keys_and_channels_by_what_they_are_given():
    for script in protocol.SCRIPTS:
        assert protocol.PREFIX not in script.text


def test_an_unknown_command_is_not_sent_at_all(broker, ours):
    before = broker[1].info("commandstats")
    with pytest.raises(RuntimeError, match="where FLUSHALL has names is not known"):
        ours.flushall()
    with pytest.raises(RuntimeError, match="where RENAME"):
        protocol.execute(ours, [("SET", "a", "1"), ("RENAME", "a", "b")])
    assert "cmdstat_set" not in broker[1].info("commandstats").keys() - before.keys()
    assert ours.ping()


def test_answers_have_no_prefix(broker, ours):
    _, all_keys = broker
    ours.xadd("penstock:s", {"p": "1"}, id="1-1")
    ours.xadd("penstock:t", {"p": "2"}, id="1-1")
    both = ours.xread({"penstock:s": "0", "penstock:t": "0"})
    assert [name for name, _ in protocol.by_stream(both)] == ["penstock:s", "penstock:t"]
    protocol.command(ours, "XGROUP CREATE", "penstock:s", "g", "0")
    found = protocol.execute(
        ours, [("XREADGROUP", "GROUP", "g", "me", "STREAMS", "penstock:s", ">")]
    )[0]
    assert [name for name, _ in protocol.by_stream(found)] == ["penstock:s"]
    assert not protocol.by_stream(protocol.command(ours, "XREAD", "STREAMS", "penstock:s", "2"))
    ours.rpush("list", "shop:value")
    assert ours.blpop(["none", "list"], timeout=1) == ("list", "shop:value")
    assert ours.blpop(["none", "list"], timeout=0.01) is None
    all_keys.set("penstock:neighbour", "1")
    assert sorted(ours.scan_iter(match="penstock:*")) == ["penstock:s", "penstock:t"]
    ours.delete("penstock:s", "penstock:t")
    assert all_keys.keys("*") == ["penstock:neighbour"]


def test_a_pipeline_as_a_transaction_has_the_prefix(broker, ours):
    with ours.pipeline() as pipeline:
        pipeline.watch("a")
        pipeline.multi()
        pipeline.set("a", "1")
        pipeline.get("a")
        assert pipeline.execute() == [True, "1"]
    assert broker[1].keys("*") == ["shop:a"]


def test_a_value_of_the_wrong_type_is_found_under_the_prefix_alone(broker, ours):
    url, all_keys = broker
    for key in ("shop:penstock:reports", "penstock:reports", "shop:x:penstock:reports"):
        all_keys.set(key, "poison")
    assert list(protocol.misplaced(ours)) == ["penstock:reports"]
    protocol.remove_misplaced(ours)
    assert sorted(all_keys.keys("*")) == ["penstock:reports", "shop:x:penstock:reports"]
    all_keys.set("shop:penstock:installation", "poison")
    with (
        pytest.raises(BackendError, match="type under shop:penstock:installation"),
        connection.translate_errors(url + OPTION, protocol.INSTALLATION),
    ):
        ours.hgetall(protocol.INSTALLATION)


def test_the_scheduler_and_its_calls_are_under_the_prefix(broker):
    url, all_keys = broker
    heard = []
    calls = Calls(url + OPTION, heard.append)
    calls.start()
    transport = RedisTransport(url + OPTION, KEY)
    transport.open()
    try:
        attempt = protocol.attempt_key("t")
        until(lambda: all_keys.pubsub_channels() == ["shop:penstock:calls"], "it listens")
        for effects in (
            Effects(cuts=[Cut(id="c", cause="", trial="t", fence=7)]),
            Effects(revokes=[Revoke(id="r", cause="", trial="t", fence=7, ranks=2)]),
        ):
            all_keys.hset(PREFIX + attempt, mapping={"fence": 7, "state": "running"})
            heard.clear()
            transport.carry_out(effects)
            until(lambda: heard == [attempt], "the call is heard")
        all_keys.client_kill_filter(_type="pubsub")
        until(lambda: all_keys.publish("shop:penstock:calls", "again"), "it listens again")
        until(lambda: "again" in heard, "it is heard")
        assert transport.survey([]).boot
        assert transport.receive(0.05) == []
    finally:
        calls.stop()
        transport.close()
    assert all(key.startswith(PREFIX) for key in all_keys.keys("*")), all_keys.keys("*")


def test_a_user_who_has_the_prefix_alone_is_fit(broker):
    url, client = broker
    rules = fitness.acl_rules(0, PREFIX)
    assert rules.startswith("~shop:* resetchannels &shop:penstock:calls &shop:/0.penstock.pidbox ")
    client.execute_command("ACL", "SETUSER", USER, "on", f">{WORD}", *rules.split())
    theirs = re.sub("//.*@", f"//{USER}:{WORD}@", url)
    with connection.connect(theirs + OPTION) as connected:
        fitness.check(connected, theirs + OPTION)
    assert client.keys("*") == []
    with connection.connect(theirs) as connected, pytest.raises(BrokerUnfit, match="~penstock:"):
        fitness.check(connected, theirs)
    client.execute_command("ACL", "SETUSER", USER, "-hmget")
    with connection.connect(theirs + OPTION) as connected, pytest.raises(BrokerUnfit) as refused:
        fitness.check(connected, theirs + OPTION)
    assert f"ACL SETUSER NAME {rules}" in str(refused.value)


def test_advice_names_the_key_that_the_broker_has():
    url = "redis://u:secret@h:6379/0?global_keyprefix=it's:"
    said = str(ownership.other_owner_error(url, "somebody"))
    assert said.endswith(
        """redis-cli -u redis://***@h:6379/0 DEL 'it'"'"'s:penstock:installation'"""
    )
    assert "penstock:installation" in str(ownership.other_owner_error("redis://h/0", "somebody"))


def test_celery_is_given_it_as_its_own_option():
    conf = make_app("redis://h:6379/0?global_keyprefix=shop:").conf
    assert conf.broker_url == "redis://h:6379/0"
    assert conf.broker_transport_options["global_keyprefix"] == PREFIX
    several = "sentinel://a;sentinel://b/2?master_name=m&global_keyprefix=shop:"
    conf = make_app(several).conf
    assert conf.broker_transport_options["global_keyprefix"] == PREFIX
    assert conf.broker_transport_options["master_name"] == "m"
    assert "shop" not in conf.broker_url
    plain = make_app("redis://h:6379/0").conf
    assert "global_keyprefix" not in plain.broker_transport_options


def test_flower_counts_the_queues_that_a_dispatch_fills(broker, ours):
    url, all_keys = broker
    keys = (protocol.attempt_key("t"), protocol.lease_key("t", 0), "cpu.n.0.s0")
    assert protocol.call(ours, protocol.DISPATCH, keys, 1, "message") == 1
    assert all_keys.llen("shop:cpu.n.0.s0") == 1
    conf = make_app(url + OPTION).conf

    async def counted():
        page = Broker(conf.broker_url, broker_options=conf.broker_transport_options)
        return await page.queues(["cpu.n.0.s0"])

    assert asyncio.run(counted()) == [{"name": "cpu.n.0.s0", "messages": 1}]


def test_a_client_of_sentinels_has_it_and_the_sentinels_do_not():
    url = "sentinel://a;sentinel://b/2?master_name=m&global_keyprefix=shop:"
    pool = connection.connect(url).connection_pool
    assert "command_packer" in pool.connection_kwargs
    for sentinel in pool.sentinel_manager.sentinels:
        assert "command_packer" not in sentinel.get_connection_kwargs()
    assert pool.connection_class is sentinels.CONNECTIONS[False]


def test_without_a_prefix_a_client_is_redis_pys_own():
    client = connection.connect("redis://h:6379/0")
    theirs = redis.Redis.from_url("redis://h:6379/0")
    assert type(client) is redis.Redis
    assert client.connection_pool.connection_class is Connection
    assert "command_packer" not in client.get_connection_kwargs()
    assert client.response_callbacks == theirs.response_callbacks
    code = (
        "import sys; from penstock.app.broker import connection, transport;"
        " connection.connect('redis://h:6379/0'); sys.exit('penstock.app.broker.prefixed'"
        " in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
