"""The scheduler's side: one round trip in, one out, and nothing forged gets through."""

from __future__ import annotations

import json

import pytest
from penstock.app import protocol
from penstock.app.transport import OpenAttempt, RedisTransport
from penstock.profiling.errors import BackendError
from penstock.scheduler.decisions import Cut, Release, Revoke
from worker_bench import KEY, SPEC, bench, client

TRIAL = "st-0000"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with bench(tmp_path_factory.mktemp("transport")) as found, client(found) as connection:
        yield found, connection


@pytest.fixture
def at(shared):
    found, connection = shared
    connection.flushall()
    found.transport.open()
    assert found.transport.receive(0) == []
    return found


@pytest.fixture
def redis(shared):
    return shared[1]


def say(redis, body, key=KEY, stream=protocol.REPORTS):
    text = body if isinstance(body, str) else json.dumps(body)
    return redis.execute_command("XADD", stream, "*", *protocol.sealed(key, text))


def test_both_streams_are_read_in_one_go_and_acknowledged_entries_are_gone(at, redis):
    say(redis, {"kind": "epoch", "n": 1})
    say(redis, {"id": "c", "kind": "cancel"}, stream=protocol.COMMANDS)
    found = at.transport.receive(1.0)
    assert [(m.stream, m.body["kind"]) for m in found] == [
        ("reports", "epoch"),
        ("commands", "cancel"),
    ]
    at.transport.carry_out(acks=found)
    assert redis.xlen(protocol.REPORTS) == redis.xlen(protocol.COMMANDS) == 0
    assert redis.xpending(protocol.REPORTS, protocol.GROUP)["pending"] == 0


def test_a_restarted_scheduler_reads_first_what_the_last_one_did_not_acknowledge(at, redis):
    for n in (1, 2):
        say(redis, {"n": n})
    assert len(at.transport.receive(0)) == 2
    say(redis, {"n": 3})
    successor = RedisTransport(at.url, KEY)
    successor.open()
    assert [m.body["n"] for m in successor.receive(0, limit=1)] == [1]
    assert [m.body["n"] for m in successor.receive(0, limit=1)] == [2]
    assert [m.body["n"] for m in successor.receive(0)] == [3]
    successor.close()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (protocol.sealed(b"another key", "{}"), "wrong signature"),
        (("p", "{}"), "no signature"),
        (("x", "y"), "no text"),
        (protocol.sealed(KEY, "not JSON"), "not JSON"),
        (protocol.sealed(KEY, "[1]"), "not a JSON object"),
    ],
)
def test_a_forged_or_malformed_entry_is_logged_and_dropped(at, redis, caplog, fields, why):
    redis.execute_command("XADD", protocol.REPORTS, "*", *fields)
    say(redis, {"n": 1})
    assert [m.body for m in at.transport.receive(1.0)] == [{"n": 1}]
    assert why in caplog.text
    assert redis.xlen(protocol.REPORTS) == 1


def test_a_wiped_broker_is_noticed_and_the_streams_are_made_anew(at, redis):
    assert at.transport.survey([]).boot
    redis.flushall()
    assert at.transport.survey([]).boot is None
    assert at.transport.receive(0.01) == []
    say(redis, {"n": 1})
    assert [m.body["n"] for m in at.transport.receive(1.0)] == [1]
    assert at.transport.survey([]).boot
    assert protocol.fetch_installation(redis, at.url).key == KEY


def test_the_key_of_a_broker_outlives_schedulers(at, redis):
    other = RedisTransport(at.url, b"another key of thirty-two bytes.", store="file:///s")
    other.open()
    installation = protocol.fetch_installation(redis, at.url)
    assert (installation.key, installation.store) == (KEY, "file:///s")
    say(redis, {"n": 1})
    assert [m.body for m in other.receive(0.1)] == [{"n": 1}], "sealed by the broker's key"
    other.close()


def test_a_turn_is_carried_out_whole(at, redis):
    running = at.send("st-0001")
    cut = at.send("st-0002")
    over = at.send("st-0003")
    at.transport.carry_out(
        dispatches=[(at.dispatch("st-0001", fence=running.segment.fence + 1), SPEC)],
        cuts=[Cut(id="1.0", cause=1, trial="st-0002", fence=cut.segment.fence)],
        revokes=[Revoke(id="1.1", cause=1, trial="st-0001", fence=running.segment.fence, ranks=1)],
        releases=[Release(id="1.2", cause=1, trial="st-0003")],
        answers=[("reply:abc", '{"ok":true}')],
    )
    attempts = [OpenAttempt(trial, 0, 1) for trial in ("st-0001", "st-0002", "st-0003")]
    states = at.transport.survey(attempts).states
    assert (states["st-0001"].fence, states["st-0001"].state) == (
        running.segment.fence + 1,
        "dispatched",
    )
    assert redis.hget(protocol.attempt_key("st-0002"), "cut") == "1"
    assert states["st-0003"].fence is None, f"{over.segment} is released"
    assert redis.brpop(protocol.PREFIX + "reply:abc", timeout=1)[1] == '{"ok":true}'


def test_a_survey_shows_only_devices_that_answer_and_drops_malformed_records(at, redis):
    record = {
        "device": {"name": "cpu.n.1", "node": "n", "kind": "cpu", "cores": [0], "memory": None},
        "incarnation": "i",
        "draining": True,
    }
    redis.hset(protocol.DEVICES, mapping={"cpu.n.1": json.dumps(record), "bad": "{", "dead": "{}"})
    redis.set(protocol.alive_key("cpu.n.1"), "i", px=60_000)
    redis.set(protocol.alive_key("bad"), "i", px=60_000)
    devices = at.transport.survey([]).devices
    assert [(name, seen.draining, seen.device.cores) for name, seen in devices.items()] == [
        ("cpu.n.1", True, (0,))
    ]
    assert not redis.hexists(protocol.DEVICES, "dead")
    redis.delete(protocol.alive_key("cpu.n.1"))
    assert at.transport.survey([]).stopped == {"cpu.n.1"}, "it drained"
    redis.hset(protocol.DEVICES, "cpu.n.1", json.dumps(record | {"draining": False}))
    assert at.transport.survey([]).stopped == frozenset(), "it died"


def test_every_call_raises_backend_error_while_the_broker_is_away(tmp_path):
    away = RedisTransport(f"redis+socket://{tmp_path}/no.sock?virtual_host=0", KEY)
    for attempt in (
        away.open,
        lambda: away.receive(0.1),
        lambda: away.survey([]),
        lambda: away.carry_out(answers=[("reply:x", "{}")]),
    ):
        with pytest.raises(BackendError, match="does not answer"):
            attempt()


def test_a_broker_serves_one_scheduler_at_a_time(at, redis):
    """A second owner is refused while the first renews its hold; the same owner comes back."""
    redis.delete("penstock:scheduler")
    first = RedisTransport(at.url, KEY, owner="/a on one")
    first.open()
    RedisTransport(at.url, KEY, owner="/a on one").open()
    second = RedisTransport(at.url, KEY, owner="/b on two")
    with pytest.raises(BackendError, match="another scheduler: /a on one"):
        second.open()
    first.survey([])
    with pytest.raises(BackendError, match="HELD /a on one"):
        second.survey([])
    second.close()
    assert protocol.is_served(redis, at.url), "by the first"
    first.close()
    assert not protocol.is_served(redis, at.url)
    second = RedisTransport(at.url, KEY, owner="/b on two")
    second.open()
    second.close()
