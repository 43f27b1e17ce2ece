"""Trials in the seats of one lane train their epochs together, and keep what is their own."""

from __future__ import annotations

import time

import pytest
from patience import until
from trainers.trainer_process import (
    ENDLESS,
    alone_hashes,
    as_far,
    hashes,
    hear_all,
    segment,
    train_until,
)
from user_code import trainees

pytestmark = pytest.mark.extension("lanes")


def task(n, code=trainees.Small, epochs=6, **changes):
    fields = {"fence": n + 1, "seed": n, "ext": {"fusion": {}}, **changes}
    return segment(code, 1, epochs, trial=f"s-{n:04}", **fields)


def epochs(heard):
    return [m for m in heard if m["op"] == "epoch"]


def together(heard):
    """Return True if some epochs were trained together with others."""
    return any(m.get("together", 1) > 1 for m in epochs(heard))


def begin(lane, tasks):
    for each in tasks:
        lane.run(each)


def test_trials_of_one_structure_are_trained_together_to_the_same_bits(alone, lane):
    tasks = [task(n, epochs=ENDLESS) for n in range(4)]
    heard = train_until(lane, tasks, together)
    assert hashes(heard) == alone_hashes(alone, as_far(tasks, heard))
    company = [m.get("together", 1) for m in epochs(heard)]
    assert 0 not in company, "two may be no faster than one: four are tried all the same"
    assert not [m for m in heard if m["op"] == "remarked"]


def test_one_of_another_structure_goes_on_beside_them(alone, lane):
    tasks = [task(n) for n in range(3)] + [task(3, trainees.OneByOne)]
    begin(lane, tasks)
    heard = hear_all(lane, tasks)
    assert hashes(heard) == alone_hashes(alone, tasks)
    of_it = [m for m in heard if m.get("trial") == "s-0003"]
    assert {m.get("together", 1) for m in epochs(of_it)} == {0}
    said = [m["op"] for m in of_it if m["op"] in ("remarked", "epoch")]
    assert said == ["remarked"] + ["epoch"] * 6, "once, before its first epoch is reported"
    [why] = [m["text"] for m in of_it if m["op"] == "remarked"]
    assert "example by example" in why


def test_one_that_is_stopped_leaves_the_others_alone(alone, large_lane):
    tasks = [task(n, trainees.Long, ENDLESS, params={"steps": 200}) for n in range(8)]
    gone, *others = tasks
    large_lane.run(gone)
    heard = large_lane.hear_until("epoch")

    def met(heard):
        """The first one is stopped as soon as it has company, and the others go on together."""
        if together(heard) and not stops:
            stops.append(len(heard))
            large_lane.say(op="stop", trial=gone.trial, fence=gone.fence)
        return any(m["op"] == "stopped" for m in heard) and together(heard[stops[0] :])

    stops = []
    heard += train_until(large_lane, others, met)
    assert ("stopped", gone.trial) in {(m["op"], m["trial"]) for m in heard}
    kept = {key: value for key, value in hashes(heard).items() if key[0] != gone.trial}
    assert kept == alone_hashes(alone, as_far(others, heard))


def test_one_that_comes_in_the_middle_of_an_epoch_takes_part_in_the_next(alone, large_lane):
    first = [task(n, trainees.Waits, ENDLESS, params={"steps": 50}) for n in range(7)]
    late = task(7, trainees.Waits, 2, params={"steps": 50})
    begun = []

    def met(heard):
        """Seven are trained together, then one more comes and ends its two epochs."""
        if not begun and any(m.get("together", 1) == len(first) for m in epochs(heard)):
            begun.append(late)
            large_lane.run(late)
        return any(m["trial"] == late.trial and m["closes"] for m in epochs(heard))

    heard = train_until(large_lane, first, met)
    company = [m.get("together", 1) for m in epochs(heard) if m["trial"] == late.trial]
    assert min(company) >= 7, "in one of them another trial may be timed alone"
    assert hashes(heard) == alone_hashes(alone, as_far([*first, late], heard))


def test_one_that_comes_where_two_are_no_faster_leads_beside_the_other(alone, lane):
    pair = [task(n, trainees.SlowTogether, 2, params={"steps": 200}) for n in range(2)]
    begin(lane, pair)
    assert epochs(hear_all(lane, pair))[-1]["together"] == 1
    first = task(2, trainees.SlowTogether, 6, params={"steps": 200})
    lane.run(first)
    heard = lane.hear_until("epoch")
    late = task(3, trainees.SlowTogether, 6, params={"steps": 200})
    lane.run(late)
    heard += hear_all(lane, [first, late])
    assert hashes(heard) == alone_hashes(alone, [first, late])


def test_one_that_fails_has_its_own_traceback_and_the_others_go_on(alone, lane):
    tasks = [task(0), task(1, trainees.Raises), task(2)]
    begin(lane, tasks)
    heard = hear_all(lane, tasks)
    [failed] = [m for m in heard if m["op"] == "failed"]
    assert (failed["trial"], failed["kind"]) == (tasks[1].trial, "exception")
    assert "trainees.py" in failed["traceback"]
    assert hashes(heard) == alone_hashes(alone, [tasks[0], tasks[2]])


def test_those_that_are_cut_end_after_the_epoch(lane):
    tasks = [task(n, trainees.Long, 50, params={"steps": 200}) for n in range(4)]
    begin(lane, tasks)
    heard = lane.hear_until("epoch")
    for each in tasks:
        lane.say(op="cut", trial=each.trial, fence=each.fence)
    heard += hear_all(lane, tasks)
    assert all(m["epoch"] < 50 for m in epochs(heard))


def test_those_whose_time_has_come_end_after_the_epoch(alone, lane):
    tasks = [task(n, until=1.0 if n % 2 else None) for n in range(4)]
    begin(lane, tasks)
    heard = hear_all(lane, tasks)
    ends = {m["trial"]: m["epoch"] for m in epochs(heard) if m["closes"]}
    assert ends == {"s-0000": 6, "s-0001": 1, "s-0002": 6, "s-0003": 1}
    assert hashes(heard).items() <= alone_hashes(alone, [task(n) for n in range(4)]).items()


def test_those_that_are_stopped_at_any_moment_leave_nothing_behind(alone, lane):
    beside, steady = task(0, trainees.Paced, 1, params={"steps": 900}), task(99, epochs=200)
    begin(lane, [beside, steady])
    heard = []
    for i, each in enumerate(task(n, epochs=ENDLESS) for n in range(1, 13)):
        lane.run(each)
        time.sleep(0.02 * i)  # a moment of loading, of rest, or of a step
        lane.say(op="stop", trial=each.trial, fence=each.fence)
        heard += hear_all(lane, [each])
        assert [m["op"] for m in heard if m.get("trial") == each.trial][-1] == "stopped"
    ended = {m["trial"] for m in heard if m.get("closes")}
    heard += hear_all(lane, [each for each in (beside, steady) if each.trial not in ended])
    assert hashes(heard).items() >= alone_hashes(alone, [beside, steady]).items()


def test_one_whose_neighbour_is_stopped_while_it_computes_for_both_is_not_stopped(alone, lane):
    beside = task(0, trainees.Paced, 1, params={"steps": 2000})
    pair = {n + 1: task(n, trainees.Long, 6, params={"steps": 400}) for n in (1, 2)}
    begin(lane, [beside, *pair.values()])
    heard = lane.hear_until("epoch")
    gone = pair.pop(until(lambda: (turn := lane.page.in_turn) in pair and turn))
    [kept] = pair.values()
    lane.say(op="stop", trial=gone.trial, fence=gone.fence)
    heard += hear_all(lane, [gone, kept])
    assert {m["trial"] for m in heard if m["op"] == "stopped"} == {gone.trial}
    found = {key: value for key, value in hashes(heard).items() if key[0] == kept.trial}
    assert found == alone_hashes(alone, [kept])
    lane.say(op="stop", trial=beside.trial, fence=beside.fence)
