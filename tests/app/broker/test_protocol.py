"""Every branch of the atomic scripts, on a real server."""

from __future__ import annotations

import pytest
from penstock.app.broker import connection, presence, protocol
from penstock.app.broker.protocol import BEAT, CALLS, CLAIM, CUT, DISPATCH, REPORT, REVOKE, call
from penstock.base.errors import BackendError
from servers.worker_bench import bench, client

TRIAL = "st-0000"
ATTEMPT, LEASE, QUEUE = protocol.attempt_key(TRIAL), protocol.lease_key(TRIAL, 0), "cpu.n.0.s0"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with bench(tmp_path_factory.mktemp("protocol")) as found, client(found) as connection:
        yield connection


@pytest.fixture
def redis(server):
    server.flushall()
    return server


def dispatch(redis, fence):
    return call(redis, DISPATCH, (ATTEMPT, LEASE, QUEUE), fence, f"message {fence}")


def claim(redis, fence, owner="w.1", lease=60_000):
    return call(redis, CLAIM, (ATTEMPT, LEASE), fence, owner, lease, 0, "", 60_000)


def beat(redis, fence, owner="w.1"):
    return call(redis, BEAT, (ATTEMPT, LEASE), fence, owner, 60_000, 0)


def report(redis, fence, owner="w.1", closes=0, text="t"):
    keys = (ATTEMPT, LEASE, protocol.REPORTS)
    return call(redis, REPORT, keys, fence, owner, 0, closes, text, "seal")


def test_a_dispatch_sets_the_fence_and_queues_the_message_in_one_step(redis):
    assert dispatch(redis, 3) == 1
    assert redis.hgetall(ATTEMPT) == {"fence": "3", "state": "dispatched"}
    assert redis.lrange(QUEUE, 0, -1) == ["message 3"]


def test_a_repeated_or_older_dispatch_sends_nothing(redis):
    dispatch(redis, 3)
    assert dispatch(redis, 3) == 0
    assert dispatch(redis, 2) == 0
    assert redis.llen(QUEUE) == 1
    assert redis.hget(ATTEMPT, "fence") == "3"


def test_a_newer_dispatch_ends_owner_cut_and_lease_of_the_older(redis):
    dispatch(redis, 3)
    claim(redis, 3)
    call(redis, CUT, (ATTEMPT, CALLS), 3, ATTEMPT)
    assert dispatch(redis, 4) == 1
    assert redis.hgetall(ATTEMPT) == {"fence": "4", "state": "dispatched"}
    assert not redis.exists(LEASE)


def test_fences_of_nine_and_ten_are_compared_as_numbers(redis):
    dispatch(redis, 10)
    assert dispatch(redis, 9) == 0


def test_a_claim_takes_a_lease_and_only_under_the_fence(redis):
    assert claim(redis, 3) == "stale", "the broker knows nothing of the trial"
    dispatch(redis, 3)
    assert claim(redis, 2) == "stale"
    assert claim(redis, 4) == "stale"
    assert claim(redis, 3) == "ok"
    assert redis.get(LEASE) == "w.1"
    assert 0 < redis.pttl(LEASE) <= 60_000


def test_a_second_owner_is_a_duplicate_while_the_lease_lives_and_takes_over_afterwards(redis):
    dispatch(redis, 3)
    claim(redis, 3)
    assert claim(redis, 3, "w.2") == "dup"
    assert claim(redis, 3, "w.1") == "ok", "its answer was lost, and it asks again"
    redis.delete(LEASE)
    assert claim(redis, 3, "w.2") == "ok"
    assert report(redis, 3, "w.1") == "stale"


def test_a_beat_renews_the_lease_says_a_cut_is_wanted_or_fenced_off(redis):
    assert beat(redis, 3) == -1, "the broker lost its data"
    dispatch(redis, 3)
    assert beat(redis, 3) == -1, "never claimed"
    claim(redis, 3, lease=500)
    assert beat(redis, 3) == 0
    assert redis.pttl(LEASE) > 500
    assert beat(redis, 3, "w.2") == -1
    assert call(redis, CUT, (ATTEMPT, CALLS), 3, ATTEMPT) == 1
    assert beat(redis, 3) == 1
    dispatch(redis, 4)
    assert beat(redis, 3) == -1


def test_a_report_counts_only_under_fence_and_owner(redis):
    dispatch(redis, 3)
    claim(redis, 3)
    assert report(redis, 2) == "stale"
    assert report(redis, 3, "w.2") == "stale"
    assert redis.xlen(protocol.REPORTS) == 0
    assert report(redis, 3, text="epoch 1") == "ok"
    call(redis, CUT, (ATTEMPT, CALLS), 3, ATTEMPT)
    assert report(redis, 3, text="epoch 2") == "cut"
    entries = redis.xrange(protocol.REPORTS)
    assert [fields for _, fields in entries] == [
        {"p": "epoch 1", "s": "seal"},
        {"p": "epoch 2", "s": "seal"},
    ]


def test_the_closing_report_ends_attempt_and_lease_and_counts_once(redis):
    dispatch(redis, 3)
    claim(redis, 3)
    assert report(redis, 3, closes=1) == "ok"
    assert redis.hget(ATTEMPT, "state") == "done"
    assert not redis.exists(LEASE)
    assert report(redis, 3, closes=1) == "done"
    assert redis.xlen(protocol.REPORTS) == 1
    assert claim(redis, 3, "w.2") == "done"
    assert beat(redis, 3) == 0, "its last report is on the way: nobody is to be stopped"
    assert not redis.exists(LEASE)
    assert call(redis, CUT, (ATTEMPT, CALLS), 3, ATTEMPT) == 0


def test_a_revoked_attempt_is_stale_everywhere_and_its_trial_can_be_sent_again(redis):
    dispatch(redis, 3)
    claim(redis, 3)
    assert call(redis, REVOKE, (ATTEMPT, CALLS, LEASE), 2, ATTEMPT) == 0
    assert call(redis, REVOKE, (ATTEMPT, CALLS, LEASE), 3, ATTEMPT) == 1
    assert not redis.exists(LEASE)
    assert claim(redis, 3, "w.2") == "stale"
    assert claim(redis, 4, "w.2") == "stale", "nobody sent that one"
    assert beat(redis, 3) == -1
    assert report(redis, 3) == "stale"
    assert dispatch(redis, 4) == 1


def test_a_server_that_forgot_the_scripts_is_given_them_and_nothing_runs_twice(redis):
    redis.script_flush()
    commands = [
        ("RPUSH", "list", "once"),
        DISPATCH.command((ATTEMPT, LEASE, QUEUE), (3, "message")),
        ("RPUSH", "list", "twice"),
    ]
    assert protocol.execute(redis, commands) == [1, 1, 2]
    assert redis.lrange("list", 0, -1) == ["once", "twice"]
    redis.script_flush()
    assert claim(redis, 3) == "ok"


def test_a_broker_that_does_not_answer_is_a_backend_error_without_its_password(tmp_path):
    url = f"redis+socket://user:secret@{tmp_path}/nobody.sock?virtual_host=0"
    with pytest.raises(BackendError, match=r"nobody\.sock") as caught:
        presence.fetch_installation(connection.connect(url), url)
    assert "secret" not in str(caught.value)
