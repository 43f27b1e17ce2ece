"""Running out of memory: whose fault it was, who pays for it, and what the study learns."""

from __future__ import annotations

import pytest
from penstock.extensions.memory.fit import need
from penstock.extensions.memory.known import known_trial
from penstock.extensions.memory.shortages import RAISE, TOGETHER
from penstock.scheduler.model.events import AttemptFailed
from penstock.scheduler.model.trial import TrialState
from worlds.sized_world import GIB, Sized

OURS, KILLED = ("memory", "no memory for 1 GiB"), ("died", "the trainer ended with signal 9")


def run_out(at, number, kind=OURS):
    trial = at.state.trials[at.name(number)]
    failed = AttemptFailed(
        at=at.world.at, trial=trial.id, fence=trial.fence, kind=kind[0], message=kind[1]
    )
    at.world.send(failed)
    return trial


def needs(at, number):
    return need(at.state, at.state.trials[at.name(number)], "cpu").size


@pytest.mark.parametrize("kind", [OURS, KILLED])
def test_a_trial_that_was_not_measured_is_taken_to_need_more_and_tried_beside_others_again(kind):
    at = Sized(2.0, 2.0, 2.0, memory=8.0)
    at.epoch(0)
    assert at.on() == [0, 1, 2]
    trial = run_out(at, 1, kind)
    assert needs(at, 1) == round(RAISE * 2 * GIB)
    known = known_trial(at.state, trial)
    assert (trial.failures, known.alone, known.shortages) == (0, False, 1)
    assert at.on() == [0, 1, 2], "there is room for so much, too"
    assert needs(at, 0) == needs(at, 2) == 2 * GIB


def test_a_neighbour_that_was_not_measured_is_blamed_by_one_that_was():
    at = Sized(2.0, 2.0, 2.0, memory=8.0)
    at.epoch(0)
    trial = run_out(at, 0, KILLED)
    assert (trial.failures, known_trial(at.state, trial).alone) == (0, False)
    assert needs(at, 0) == 2 * GIB, "it needs what it was seen to have"
    assert needs(at, 1) == needs(at, 2) == round(RAISE * 2 * GIB)


def test_who_runs_out_again_and_again_shares_no_more():
    at = Sized(1.0, 1.0, memory=8.0)
    at.epoch(0)
    for n in range(1, TOGETHER):
        assert not known_trial(at.state, run_out(at, 1)).alone
        assert needs(at, 1) == round(RAISE**n * GIB)
    assert known_trial(at.state, run_out(at, 1)).alone
    assert at.on() == [0]
    assert at.state.trials[at.name(1)].state is TrialState.WAITING


def test_where_all_were_measured_the_one_that_ran_out_is_taken_to_need_more():
    at = Sized(2.0, 2.0, memory=8.0)
    at.epoch(0)
    at.epoch(1)
    run_out(at, 1)
    assert (needs(at, 0), needs(at, 1)) == (2 * GIB, round(RAISE * 2 * GIB))


def test_a_limit_of_the_users_is_not_a_matter_of_the_neighbours():
    at = Sized(2.0, 2.0, memory=8.0, memory_limit=GIB)
    at.epoch(0)
    assert known_trial(at.state, run_out(at, 1)).alone


def test_alone_it_goes_on_where_there_is_more_and_is_infeasible_where_there_is_not():
    at = Sized(2.0, memory=4.0, slots=2)
    at.join("d9", memory=16.0)
    trial = run_out(at, 0)
    assert (at.on("d0"), at.on("d9"), trial.failures) == ([], [0], 0)
    run_out(at, 0)
    assert trial.state is TrialState.FAILED
    assert trial.failure.kind == "memory"


def test_it_does_not_wait_for_a_larger_device_that_has_left():
    at = Sized(2.0, memory=4.0, slots=2)
    at.join("d9", memory=16.0)
    run_out(at, 0)
    assert at.on("d9") == [0]
    at.leave("d9")
    assert at.on("d0") == [0]


def test_it_does_not_wait_for_a_larger_device_that_refuses_its_study():
    at = Sized(2.0, memory=4.0, slots=2)
    at.join("d9", memory=16.0)
    at.state.studies["s-1"].refused["d9"] = "another numeric signature"
    trial = run_out(at, 0)
    assert (trial.state, trial.failure.kind) == (TrialState.FAILED, "memory")


def test_a_process_that_is_killed_alone_may_have_been_anybodys_victim():
    at = Sized(2.0, memory=4.0)
    trial = run_out(at, 0, KILLED)
    assert (trial.failures, known_trial(at.state, trial).floors, at.on()) == (1, {}, [0])
