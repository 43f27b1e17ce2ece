"""Trials in the seats of one lane train their epochs together, and keep what is their own."""

from __future__ import annotations

import time

import pytest
import trainees
from trainer_process import TrainerProcess, hashes, hear_all, segment


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    with TrainerProcess(tmp_path_factory.mktemp("alone") / "log", threads=1) as trainer:
        yield trainer


@pytest.fixture
def lane(tmp_path):
    with TrainerProcess(tmp_path / "log", threads=1, seats=4) as trainer:
        yield trainer


def task(n, code=trainees.Small, epochs=6, **changes):
    fields = {"fence": n + 1, "seed": n, "fuse": True, **changes}
    return segment(code, 1, epochs, trial=f"s-{n:04}", **fields)


def epochs(heard):
    return [m for m in heard if m["op"] == "epoch"]


def test_trials_of_one_structure_are_trained_together_to_the_same_bits(alone, lane):
    tasks = [task(n) for n in range(4)]
    for each in tasks:
        lane.run(each)
    heard = hear_all(lane, tasks)
    expected = {}
    for each in tasks:
        expected |= hashes(alone.carry_out(each))
    assert hashes(heard) == expected
    company = [m["together"] for m in epochs(heard)]
    assert max(company) > 1
    assert 0 not in company, "two may be no faster than one: four are tried all the same"
    assert not [m for m in heard if m["op"] == "remarked"]


def test_one_of_another_structure_goes_on_beside_them(alone, lane):
    tasks = [task(n) for n in range(3)] + [task(3, trainees.OneByOne)]
    for each in tasks:
        lane.run(each)
    heard = hear_all(lane, tasks)
    expected = {}
    for each in tasks:
        expected |= hashes(alone.carry_out(each))
    assert hashes(heard) == expected
    of_it = [m for m in heard if m.get("trial") == "s-0003"]
    assert {m["together"] for m in epochs(of_it)} == {0}
    said = [m["op"] for m in of_it if m["op"] in ("remarked", "epoch")]
    assert said == ["remarked"] + ["epoch"] * 6, "once, before its first epoch is reported"
    [why] = [m["text"] for m in of_it if m["op"] == "remarked"]
    assert "example by example" in why


def test_one_that_is_stopped_leaves_the_others_alone(alone, lane):
    tasks = [task(n, trainees.Paced, 3, params={"steps": 300}) for n in range(3)]
    for each in tasks:
        lane.run(each)
    heard = lane.hear_until("progress")
    gone = tasks[1]
    lane.say(op="stop", trial=gone.trial, fence=gone.fence)
    heard += hear_all(lane, tasks)
    assert ("stopped", gone.trial) in {(m["op"], m["trial"]) for m in heard}
    kept = {k: v for k, v in hashes(heard).items() if k[0] != gone.trial}
    assert kept == hashes(alone.carry_out(tasks[0])) | hashes(alone.carry_out(tasks[2]))


def test_one_that_fails_has_its_own_traceback_and_the_others_go_on(alone, lane):
    tasks = [task(0), task(1, trainees.Raises), task(2)]
    for each in tasks:
        lane.run(each)
    heard = hear_all(lane, tasks)
    [failed] = [m for m in heard if m["op"] == "failed"]
    assert failed["trial"] == tasks[1].trial and "Raises" not in failed["kind"]
    assert hashes(heard) == hashes(alone.carry_out(tasks[0])) | hashes(alone.carry_out(tasks[2]))


def test_those_that_are_cut_end_after_the_epoch(lane):
    tasks = [task(n, trainees.Paced, 50, params={"steps": 100}) for n in range(2)]
    for each in tasks:
        lane.run(each)
    heard = lane.hear_until("epoch")
    for each in tasks:
        lane.say(op="cut", trial=each.trial, fence=each.fence)
    heard += hear_all(lane, tasks)
    assert all(m["epoch"] < 50 for m in epochs(heard))


def test_those_that_are_stopped_at_any_moment_leave_nothing_behind(alone, lane):
    lane.run(beside := task(0, trainees.Paced, 1, params={"steps": 900}))
    stopped = [task(n, epochs=200) for n in range(1, 13)]
    lane.run(steady := task(99, epochs=200))
    heard = []
    for i, each in enumerate(stopped):
        lane.run(each)
        time.sleep(0.02 * i)
        lane.say(op="stop", trial=each.trial, fence=each.fence)
        heard += hear_all(lane, [each])
        assert [m["op"] for m in heard if m.get("trial") == each.trial][-1] == "stopped"
    ended = {m["trial"] for m in heard if m.get("closes")}
    heard += hear_all(lane, [each for each in (beside, steady) if each.trial not in ended])
    expected = hashes(alone.carry_out(beside)) | hashes(alone.carry_out(steady))
    assert hashes(heard).items() >= expected.items()


def test_one_whose_neighbour_is_stopped_while_it_computes_for_both_is_not_stopped(alone, lane):
    beside = task(0, trainees.Paced, 1, params={"steps": 2000})
    pair = [task(n, trainees.Long, 3, params={"steps": 400}) for n in (1, 2)]
    lane.run(beside)
    for each in pair:
        lane.run(each)
    heard = lane.hear_until("epoch")
    gone, kept = pair
    time.sleep(0.1)
    lane.say(op="stop", trial=gone.trial, fence=gone.fence)
    heard += hear_all(lane, pair)
    assert {m["trial"] for m in heard if m["op"] == "stopped"} == {gone.trial}
    found = {key: value for key, value in hashes(heard).items() if key[0] == kept.trial}
    assert found == hashes(alone.carry_out(kept))
    lane.say(op="stop", trial=beside.trial, fence=beside.fence)
