"""Several trials in one trainer take turns at steps' ends, and none of that changes their bits."""

from __future__ import annotations

import time

import pytest
from patience import until
from trainers.trainer_process import alone_hashes, hashes, hear_all, segment
from user_code import trainees

KINDS = (trainees.Small, trainees.OneByOne)


def task(n, code=trainees.Small, epochs=3, **changes):
    return segment(code, 1, epochs, trial=f"s-{n:04}", **{"fence": n + 1, "seed": n, **changes})


def test_trials_that_take_turns_train_to_the_same_bits(alone, lane):
    tasks = [task(n, KINDS[n % 2], 20, params={"width": 8 + n}) for n in range(4)]
    for each in tasks:
        lane.run(each)
    together = hear_all(lane, tasks)
    assert hashes(together) == alone_hashes(alone, tasks)
    order = [m["trial"] for m in together if m["op"] == "epoch"]
    assert order != sorted(order), "one after another"


def test_one_that_is_stopped_in_the_middle_of_an_epoch_replays_it_to_the_same_bits(alone, lane):
    beside = task(0, trainees.Paced, 1, params={"steps": 900})
    lane.run(beside)
    stopped = task(1, trainees.Paced, 2, params={"steps": 800})
    lane.run(stopped)
    heard = lane.hear_until("progress")
    while heard[-1]["trial"] != stopped.trial:
        heard += lane.hear_until("progress")
    lane.say(op="stop", trial=stopped.trial, fence=stopped.fence)
    while heard[-1]["op"] != "stopped":
        heard.append(lane.hear())
    assert heard[-1]["trial"] == stopped.trial
    again = stopped.model_copy(update={"fence": 9})
    lane.run(again)
    found = hashes(hear_all(lane, [beside, again]))
    assert found == hashes(alone.carry_out(beside)) | hashes(alone.carry_out(stopped))


def test_a_newcomer_starts_beside_a_long_epoch_and_a_failure_is_its_own(lane):
    long = task(0, trainees.Paced, 1, params={"steps": 100_000})
    lane.run(long)
    lane.hear_until("progress")
    bad = task(1, trainees.Raises)
    lane.run(bad)
    newcomer = task(2)
    lane.run(newcomer)
    heard = hear_all(lane, [bad, newcomer])
    assert {m["trial"] for m in heard if m["op"] == "failed"} == {bad.trial}
    assert len(hashes(m for m in heard if m.get("trial") == newcomer.trial)) == 3
    lane.say(op="stop", trial=long.trial, fence=long.fence)
    assert [m["op"] for m in hear_all(lane, [long])][-1] == "stopped"


def test_memory_that_one_cannot_have_is_no_neighbour_s_failure(alone, lane):
    beside = task(0, trainees.Paced, 1, params={"steps": 300})
    lane.run(beside)
    lane.run(greedy := task(1, trainees.TooBig))
    heard = hear_all(lane, [beside, greedy])
    [failed] = [m for m in heard if m["op"] == "failed"]
    assert (failed["trial"], failed["kind"]) == (greedy.trial, "memory")
    assert hashes(heard) == hashes(alone.carry_out(beside))


def test_what_changes_the_process_has_the_turn_until_its_segment_ends(lane):
    own = task(0, trainees.Paced, 1, params={"steps": 200}, memory_limit=8 << 30)
    lane.run(own)
    until(lambda: lane.page.in_turn == own.fence)
    lane.run(other := task(1, trainees.Small, 1))
    order = [m["trial"] for m in hear_all(lane, [own, other]) if m["op"] == "epoch"]
    assert order == [own.trial, other.trial]


@pytest.mark.extension("system_tuning")
def test_nobody_waits_for_a_profile_which_is_dropped_then(lane):
    profile = {"system_tuning": {"profile": True}}
    alone = task(2, trainees.Paced, 1, params={"steps": 50}, ext=profile)
    lane.run(alone)
    assert "profiled" in [m["op"] for m in hear_all(lane, [alone])]
    profiled = task(0, trainees.Paced, 1, params={"steps": 900}, ext=profile)
    lane.run(profiled)
    while lane.hear()["op"] != "progress":
        pass
    lane.run(other := task(1, trainees.Small, 1))
    heard = hear_all(lane, [profiled, other])
    assert [m["trial"] for m in heard if m["op"] == "epoch"] == [other.trial, profiled.trial]
    assert "profiled" not in [m["op"] for m in heard]


def test_seconds_are_time_in_turn_and_the_page_knows_them(lane):
    tasks = [task(n, trainees.Paced, 1) for n in range(3)]
    began = time.monotonic()
    for each in tasks:
        lane.run(each)
    until(lambda: lane.page.in_turn)
    heard = hear_all(lane, tasks)
    seconds = [m["seconds"] for m in heard if m["op"] == "epoch"]
    assert len(seconds) == 3
    assert sum(seconds) <= time.monotonic() - began
    assert min(seconds) >= 100 * 0.002, "its steps pause so long at least, all in its turn"


def test_who_has_weight_0_waits_for_those_who_have_more(lane):
    first = task(0, trainees.Paced, 2, params={"steps": 900})
    lane.run(first)
    lane.hear_until("progress")
    second = task(1, trainees.Paced, 2, ext={"lanes": {"weights": {"s-0000": 0.0, "s-0001": 1.0}}})
    lane.run(second)
    order = [m["trial"] for m in hear_all(lane, [first, second]) if m["op"] == "epoch"]
    assert order.index(second.trial) == 0
    assert order[-1] == first.trial
