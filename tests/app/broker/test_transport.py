"""The scheduler's side: one round trip in, one out, and nothing forged gets through."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from patience import PATIENCE, until
from penstock.app.broker import presence, protocol
from penstock.app.broker.dropped import counted
from penstock.app.broker.endings import Endings
from penstock.app.broker.transport import RedisTransport
from penstock.app.common.ports import Effects, OpenAttempt
from penstock.app.node.sessions.link import Link
from penstock.app.server.runner.reports import to_events
from penstock.base.errors import BackendError
from penstock.scheduler.model.decisions import Cut, Release, Revoke
from penstock.scheduler.model.events import AttemptFailed
from penstock.scheduler.model.study import Code
from servers.worker_bench import KEY, SPEC, bench, client
from trainers.trainer_process import segment
from user_code import trainees

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
    at.transport.carry_out(Effects(acks=found))
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


DEEP = "[" * 100_000
BAD = {
    "another key": (protocol.sealed(b"another key", "{}"), "seal", "wrong signature"),
    "no seal": (("p", "{}"), "fields", "no signature"),
    "other fields": (("x", "y"), "fields", "no text"),
    "a seal that is not ASCII": (("p", "{}", "s", "\u00e9" * 64), "seal", "wrong signature"),
    "a seal that is no UTF-8": (("p", "{}", "s", b"\xff" * 64), "seal", "wrong signature"),
    "a text that is no UTF-8": (("p", b"\xff\xfe{}", "s", "0" * 64), "encoding", "not UTF-8"),
    "a field that is no UTF-8": ((b"\xff", "x"), "fields", "no text"),
    "no JSON": (protocol.sealed(KEY, "not JSON"), "json", "not JSON"),
    "deep JSON": (protocol.sealed(KEY, DEEP), "json", "nested too deeply"),
    "deep JSON that ends": (
        protocol.sealed(KEY, '{"a":' * 100_000 + "1" + "}" * 100_000),
        "json",
        "nested too deeply",
    ),
    "a number of 5000 digits": (protocol.sealed(KEY, '{"a":' + "9" * 5000 + "}"), "json", "digits"),
    "a name twice": (protocol.sealed(KEY, '{"a":1,"a":2}'), "json", "twice"),
    "NaN": (protocol.sealed(KEY, '{"a":NaN}'), "json", "NaN is not a JSON number"),
    "no object": (protocol.sealed(KEY, "[1]"), "form", "not a JSON object"),
}


@pytest.mark.parametrize("stream", [protocol.REPORTS, protocol.COMMANDS])
@pytest.mark.parametrize("what", BAD)
def test_a_bad_entry_is_said_counted_and_gone_and_the_good_beside_it_are_read(
    at, redis, caplog, stream, what
):
    fields, check, words = BAD[what]
    say(redis, {"n": 1}, stream=stream)
    bad = redis.execute_command("XADD", stream, "*", *fields)
    say(redis, {"n": 2}, stream=stream)
    received = []
    while len(received) < 2:
        received += at.transport.receive(1.0)
    assert [m.body for m in received] == [{"n": 1}, {"n": 2}]
    [line] = [record.getMessage() for record in caplog.records]
    name = stream.removeprefix(protocol.PREFIX)
    assert line.startswith(f"dropped {bad} of {name} ({check}): ")
    assert words in line
    assert redis.xlen(stream) == 2
    assert counted(redis, at.url) == {(name, check): 1}


def test_five_thousand_bad_entries_are_all_counted_and_few_are_said(at, redis, caplog):
    with redis.pipeline(transaction=False) as pipeline:
        for _ in range(5_000):
            pipeline.execute_command("XADD", protocol.REPORTS, "*", "p", "x" * 400, "s", "\u00e9")
        pipeline.execute()
    # Received by a scheduler that died: the next one reads them all as its own.
    redis.xreadgroup("scheduler", "scheduler", {protocol.REPORTS: ">"}, count=200_000)
    successor = RedisTransport(at.url, KEY)
    successor.open()
    say(redis, {"n": 1})
    received = []
    while not received:
        received = successor.receive(0.2)
    assert [m.body for m in received] == [{"n": 1}]
    assert counted(redis, at.url) == {("reports", "seal"): 5_000}
    assert redis.xlen(protocol.REPORTS) == 1
    assert len(caplog.records) < 100
    assert sum(len(record.getMessage()) for record in caplog.records) < 20_000
    successor.close()


def test_a_whole_history_takes_the_place_of_what_was_sent_and_followers_miss_nothing(at, redis):
    link = Link(at.url)
    link._key = KEY  # the bench's, which is not the installation's
    at.transport.carry_out(Effects(history=[("st", protocol.whole(0))]))
    at.transport.carry_out(Effects(history=[("st", f'{{"n":{n}}}') for n in (1, 2, 3)]))
    behind = link.history("st", "")[0]
    at.transport.carry_out(Effects(history=[("st", '{"n":4}'), ("other", '{"n":1}')]))
    abreast = link.history("st", behind)[0]
    whole = [f'{{"n":{n}}}' for n in range(1, 6)]
    for _ in range(3):  # with each outage, and each start of a scheduler
        history = [("st", text) for text in (*whole, protocol.whole(len(whole)))]
        at.transport.carry_out(Effects(history=history, repeated=["st"]))
    assert redis.xlen(protocol.HISTORY + "st") == len(whole) + 1
    assert redis.xlen(protocol.HISTORY + "other") == 1
    for read in ("", behind, abreast):
        assert link.history("st", read)[1] == whole
    last = link.history("st", "")[0]
    at.transport.carry_out(Effects(history=[("st", '{"n":6}')]))
    assert link.history("st", last)[1] == ['{"n":6}']


def sent(at, *texts):
    at.transport.carry_out(Effects(history=[("st", text) for text in texts]))


def repeated(at, *texts):
    whole = (*texts, protocol.whole(len(texts)))
    effects = Effects(history=[("st", text) for text in whole], repeated=["st"])
    at.transport.carry_out(effects)


FIRST, SECOND, THIRD = (f'[{{"n":{n}}}]' for n in (1, 2, 3))


def milliseconds(redis):
    seconds, micros = redis.time()
    return seconds * 1000 + micros // 1000


def test_a_history_that_was_lost_is_known_as_such_until_all_of_it_is_sent_again(at, redis):
    link = Link(at.url)
    link._key = KEY
    assert link.history("st", "") is None, "nobody has begun it"
    sent(at, protocol.whole(0), FIRST)
    begun, texts = link.history("st", "")
    assert texts == [FIRST]
    assert link.history("st", begun) == (begun, [])
    redis.delete(protocol.HISTORY + "st")
    assert link.history("st", begun) is link.history("st", "") is None
    # Ids are of milliseconds: an entry of the same one would have the id of the lost entry.
    last = int(begun.split()[1].partition("-")[0])
    until(lambda: milliseconds(redis) > last, "the next millisecond")
    sent(at, SECOND)  # by a scheduler that knows nothing of the loss
    assert link.history("st", begun) is link.history("st", "") is None
    repeated(at, FIRST, SECOND)
    assert link.history("st", begun) == link.history("st", "")
    end, texts = link.history("st", begun)
    assert texts == [FIRST, SECOND]
    sent(at, THIRD)
    assert link.history("st", end)[1] == [THIRD]
    assert link.history("st", "")[1] == [FIRST, SECOND, THIRD]


def test_a_history_that_is_lost_while_it_is_sent_is_not_taken_for_a_whole_one(at, redis):
    link = Link(at.url)
    link._key = KEY
    sent(at, FIRST)
    redis.delete(protocol.HISTORY + "st")
    sent(at, SECOND, protocol.whole(2), THIRD)
    assert link.history("st", "") is None
    repeated(at, FIRST, SECOND, THIRD)
    assert link.history("st", "")[1] == [FIRST, SECOND, THIRD]


def test_what_a_trial_has_sampled_is_announced_under_its_fence_and_is_gone_with_the_study(
    at, redis
):
    link = Link(at.url)
    link._key = KEY
    at.transport.carry_out(Effects(dispatches=[(at.dispatch(TRIAL, fence=2), SPEC)]))
    tasks = {fence: segment(trainees.Small, trial=TRIAL, fence=fence) for fence in (1, 2)}
    assert link.claim(tasks[2], "w.0") == "ok"
    at.transport.carry_out(Effects(history=[("s", protocol.whole(0)), ("s", '[{"n":0}]')]))
    link.announce(tasks[2], "w.0", [1])
    link.announce(tasks[1], "w.0", [2])
    link.announce(tasks[2], "w.1", [3])
    end, texts = link.history("s", "")
    assert texts == ['[{"n":0,"sampled":[1]}]', '[{"n":0}]']
    assert link.history("s", end) == (end, [])
    link.announce(tasks[2], "w.0", [4])
    assert link.history("s", end)[1] == ['[{"n":0,"sampled":[4]}]']
    assert link.report(tasks[2], "w.0", {"kind": "x"}, closes=True, sampled=[9]) == "ok"
    link.announce(tasks[2], "w.0", [5])
    assert link.history("s", "")[1][2:] == ['[{"n":0,"sampled":[9]}]', '[{"n":0}]']
    at.transport.carry_out(Effects(ended=["s"]))
    assert not redis.exists(protocol.HISTORY + "s", protocol.ANNOUNCEMENTS + "s")


def test_a_member_learns_who_its_gang_is_though_what_was_put_down_for_it_is_gone(at, redis):
    """Its answer was lost on the way, or its trainer's start took longer than that is kept."""
    link = Link(at.url)
    queues = ["cpu.n.0.s0", "cpu.n.1.s0"]
    tasks = [segment(trainees.Small, trial=TRIAL, queues=queues, rank=rank) for rank in (0, 1)]
    redis.hset(protocol.attempt_key(TRIAL), mapping={"fence": 1, "state": "dispatched"})
    looks = iter([True, False])
    assert link.claim(tasks[0], "w.0", "first") == "ok"
    assert link.rendezvous(tasks[0], lambda: next(looks)) is None
    assert link.claim(tasks[1], "w.1", "second") == "ok"
    for task in tasks:
        assert redis.delete(protocol.rendezvous_key(TRIAL, 1, task.rank)) == 1
        assert link.rendezvous(task, lambda: True) == ("first", "second")
    redis.hset(protocol.attempt_key(TRIAL), "fence", 2)
    looks = iter([True, False])
    assert link.rendezvous(tasks[0], lambda: next(looks)) is None


@pytest.mark.parametrize(
    "key",
    [
        *(protocol.REPORTS, protocol.COMMANDS, protocol.RELEASES, protocol.ENDINGS),
        *(protocol.DEVICES, protocol.INSTALLATION, protocol.SCHEDULER, protocol.DROPPED),
        *(protocol.attempt_key("st-0001"), protocol.lease_key("st-0001", 0), "cpu.n.0.s0"),
        protocol.PREFIX + "reply:abc",
    ],
)
def test_a_value_of_another_type_is_removed_and_what_was_asked_for_can_be_done(at, redis, key):
    redis.delete(key)
    if key == protocol.DROPPED:  # which is asked for where there is something to count
        say(redis, {}, key=b"another key")
    if key in (protocol.SCHEDULER, protocol.lease_key("st-0001", 0)):
        redis.rpush(key, "odd")
    else:
        redis.set(key, "odd")

    def tried(attempt):
        try:
            return attempt()
        except BackendError:
            at.transport.open()  # as the scheduler does once the broker is back
            return attempt()

    def act():
        at.transport.survey([OpenAttempt("st-0001", 0, 1)])
        at.transport.carry_out(
            Effects(
                dispatches=[(at.dispatch("st-0001"), SPEC)],
                releases=[Release(id="1.2", cause=1, trial="st-0003")],
                answers=[("reply:abc", "{}")],
                ended=["another"],
            )
        )
        return at.transport.receive(0.01)

    assert tried(act) == []
    at.transport.survey([])
    say(redis, {"n": 1})
    assert [m.body for m in tried(lambda: at.transport.receive(1.0))] == [{"n": 1}]
    wanted = {protocol.SCHEDULER: "string", protocol.REPORTS: "stream"}.get(key)
    assert wanted is None or redis.type(key) == wanted
    assert redis.llen("cpu.n.0.s0") >= 1
    if key != protocol.lease_key("st-0001", 0):  # whose type nothing asks for
        assert counted(redis, at.url)["keys", "type"] == 1


def test_a_damaged_fence_or_key_is_put_right_and_counted(at, redis):
    redis.hset(protocol.attempt_key("st-0001"), mapping={"fence": "\u0663", "state": "running"})
    assert at.transport.survey([OpenAttempt("st-0001", 0, 1)]).states["st-0001"].fence is None
    redis.hset(protocol.attempt_key("st-0001"), mapping={"fence": "odd", "state": "running"})
    at.send("st-0001")
    assert redis.llen("cpu.n.0.s0") == 1
    redis.hset(protocol.INSTALLATION, "key", b"\xff no key")
    assert presence.fetch_installation(redis, at.url) is None
    assert at.transport.survey([]).boot
    assert presence.fetch_installation(redis, at.url).key == KEY
    redis.hset(protocol.INSTALLATION, "key", "no key")
    at.transport.open()
    assert presence.fetch_installation(redis, at.url).key == KEY
    at.transport.survey([])
    assert counted(redis, at.url) == {("attempts", "form"): 1, ("installation", "form"): 2}


def test_a_wiped_broker_is_noticed_and_the_streams_are_made_anew(at, redis):
    assert at.transport.survey([]).boot
    redis.flushall()
    assert at.transport.survey([]).boot is None
    assert at.transport.receive(0.01) == []
    say(redis, {"n": 1})
    assert [m.body["n"] for m in at.transport.receive(1.0)] == [1]
    assert at.transport.survey([]).boot
    assert presence.fetch_installation(redis, at.url).key == KEY


def test_the_key_of_a_broker_outlives_schedulers(at, redis):
    other = RedisTransport(at.url, b"another key of thirty-two bytes.", store="file:///s")
    other.open()
    installation = presence.fetch_installation(redis, at.url)
    assert (installation.key, installation.store) == (KEY, "file:///s")
    say(redis, {"n": 1})
    assert [m.body for m in other.receive(0.1)] == [{"n": 1}], "sealed by the broker's key"
    other.close()


def test_a_turn_is_carried_out_whole(at, redis):
    running = at.send("st-0001")
    cut = at.send("st-0002")
    over = at.send("st-0003")
    at.transport.carry_out(
        Effects(
            dispatches=[(at.dispatch("st-0001", fence=running.segment.fence + 1), SPEC)],
            cuts=[Cut(id="1.0", cause=1, trial="st-0002", fence=cut.segment.fence)],
            revokes=[
                Revoke(id="1.1", cause=1, trial="st-0001", fence=running.segment.fence, ranks=1)
            ],
            releases=[Release(id="1.2", cause=1, trial="st-0003")],
            answers=[("reply:abc", '{"ok":true}')],
        )
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


def test_all_that_is_released_at_once_is_there_to_be_read(at, redis):
    """As by a ledger that was restored: of each trial that may be given out again."""
    n = 10_000 + 500
    releases = [Release(id=f"1.{i}", cause=1, trial=f"st-{i:04d}") for i in range(n)]
    at.transport.carry_out(Effects(releases=releases))
    assert redis.xlen(protocol.RELEASES) == n


def test_a_survey_shows_only_devices_that_answer_and_drops_malformed_records(at, redis):
    record = {
        "device": {"name": "cpu.n.1", "node": "n", "kind": "cpu", "cores": [0], "memory": None},
        "incarnation": "i",
        "draining": True,
    }
    bad = {
        "bad": "{",
        "dead": "{}",
        b"\xff": "{}",
        "no UTF-8": b"\xff",
        "deep": DEEP,
        "odd": json.dumps({**record, "device": [1]}),
        "incarnation": json.dumps({**record, "incarnation": 1}),
        "of another": json.dumps(record),
        "cpu.n.2": json.dumps(
            {**record, "device": {**record["device"], "name": "cpu.n.2", "slots": 10**9}}
        ),
    }
    redis.hset(protocol.DEVICES, mapping={"cpu.n.1": json.dumps(record), **bad})
    redis.set(protocol.alive_key("cpu.n.1"), "i", px=60_000)
    for name in bad:
        place = name if isinstance(name, bytes) else name.encode()
        redis.set(protocol.alive_key("").encode() + place, "i", px=60_000)
    redis.delete(protocol.alive_key("dead"))
    devices = at.transport.survey([]).devices
    assert [(name, seen.draining, seen.device.cores) for name, seen in devices.items()] == [
        ("cpu.n.1", True, (0,))
    ]
    assert redis.hkeys(protocol.DEVICES) == ["cpu.n.1"], "none is looked at twice"
    assert counted(redis, at.url) == {
        ("devices", "json"): 2,
        ("devices", "encoding"): 1,
        ("devices", "form"): 6,
    }
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
        lambda: away.carry_out(Effects(answers=[("reply:x", "{}")])),
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
    assert presence.is_served(redis, at.url), "by the first"
    first.close()
    assert not presence.is_served(redis, at.url)
    second = RedisTransport(at.url, KEY, owner="/b on two")
    second.open()
    second.close()


def test_a_broker_stays_its_owners_while_his_scheduler_is_down(at, redis):
    """Schedulers with the same key belong to one installation; one with another key does not."""
    redis.delete(protocol.SCHEDULER, protocol.INSTALLATION)
    first = RedisTransport(at.url, KEY, owner="/a on one")
    first.open()
    first.close()
    stranger = RedisTransport(at.url, b"x" * 32, owner="/b on two")
    with pytest.raises(
        BackendError, match=r"which is not running: /a on one.*DEL penstock:install"
    ):
        stranger.open()
    assert not presence.is_served(redis, at.url)
    assert presence.fetch_installation(redis, at.url).owner == "/a on one"
    RedisTransport(at.url, b"y" * 32, owner="/a on one").open()  # whose key file was deleted
    first.close()
    moved = RedisTransport(at.url, KEY, owner="/a on three")
    moved.open()
    moved.close()
    redis.delete(protocol.INSTALLATION)  # as the message says, and as a broker that lost its data
    stranger.open()
    stranger.close()
    redis.hdel(protocol.INSTALLATION, "owner")  # of an older version
    first.open()
    first.close()


def test_a_segment_of_which_no_task_can_be_made_fails_its_trial_and_nothing_else(at, redis):
    """The broker, the scheduler and the other dispatches of the turn are not to suffer."""
    odd = replace(SPEC, code=Code("/caf\udce9/study.py:f", "/caf\udce9", "0"))
    bad, good = at.dispatch("st-0007"), at.dispatch("st-0008")
    at.transport.carry_out(Effects(dispatches=[(bad, odd), (good, SPEC)]))
    [report] = at.transport.receive(1.0)
    [event] = to_events(report.body, 5.0)
    assert isinstance(event, AttemptFailed)
    assert (event.trial, event.fence, event.kind) == ("st-0007", bad.segment.fence, "code")
    assert "cannot be sent to a worker" in event.message
    states = at.transport.survey([OpenAttempt("st-0008", 0, 1)]).states
    assert states["st-0008"].state == "dispatched"


def test_who_waits_for_a_study_is_told_of_its_end_and_of_no_other(at):
    endings = Endings(at.url, "mine")
    at.transport.carry_out(Effects(ended=["mine"]))  # before the first call: the next look finds it
    for _ in range(2):
        began = time.monotonic()
        endings.wait(0.1)
        assert time.monotonic() - began >= 0.1
        at.transport.carry_out(Effects(ended=["other"]))
    at.transport.carry_out(Effects(ended=["mine"]))
    began = time.monotonic()
    endings.wait(3 * PATIENCE)
    assert time.monotonic() - began < PATIENCE


def test_who_waits_already_is_told_too(at, redis):
    endings = Endings(at.url, "mine")
    endings.wait(0.01)  # from here on it misses nothing
    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        waiting = pool.submit(endings.wait, 3 * PATIENCE)
        while not redis.info("clients")["blocked_clients"]:
            assert time.monotonic() - began < PATIENCE
        at.transport.carry_out(Effects(ended=["mine"]))
        waiting.result()
    assert time.monotonic() - began < 2 * PATIENCE


def test_a_broker_that_is_away_makes_a_watcher_wait_and_no_more():
    endings = Endings("redis://127.0.0.1:1/0", "mine")
    for _ in range(2):
        began = time.monotonic()
        endings.wait(0.1)
        assert time.monotonic() - began >= 0.09
