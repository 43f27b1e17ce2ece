"""Trials that users add, train and describe themselves, next to those that the engine runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock.app.ledger.codec import decode, encode, state_to_json
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.events import (
    StudyCancelled,
    StudyDeleted,
    StudyFailed,
    StudyStopped,
    StudyWritten,
)
from penstock.scheduler.model.study import Code
from penstock.scheduler.model.writing import Suggestion, Writing
from worlds.local_world import Kept, local

X = Writing(suggestions=(Suggestion("x", 0.5, "{}", 0.5),))
NOTE = Writing(user_attrs=(("note", '"mine"'),))


@pytest.fixture
def world():
    """One slot, which the first of three trials has."""
    world = Kept()
    world.submit(local())
    world.join("cpu.a.0")
    yield world
    replayed = Engine()
    for event in world.journal:
        replayed.handle(decode(*encode(event)))
    assert state_to_json(replayed.state) == state_to_json(world.engine.state)


def test_a_trial_that_waits_is_the_next_that_runs_and_is_one_of_the_study(world):
    name = world.add("waiting", writing=X)
    assert (name, world.trials[name].params) == ("s-1-0001", (("x", 0.5),))
    assert world.trials[name].enqueued
    assert [world.return_(), world.return_(), world.return_()] == ["s-1-0000", name, "s-1-0002"]
    assert world.finish.status == "complete"
    assert world.records["s-1"].spec.n_trials == 3


def test_a_trial_that_its_user_trains_has_no_slot_and_is_one_more(world):
    name = world.add("running", started=7.0)
    assert world.trials[name].created_at == 7.0
    assert world.study().spec.n_trials == 4
    assert world.study().at_work == 1
    world.write(name, writing=X)
    world.write(name, state="complete", values=(2.5,))
    assert (world.trials[name].state, world.trials[name].value) == ("completed", 2.5)
    assert world.trials[name].params == (("x", 0.5),)
    for _ in range(3):
        world.return_()
    assert world.states() == ["completed"] * 4


@pytest.mark.parametrize(
    ("state", "values", "after"),
    [("complete", (2.0, 3.0), "completed"), ("pruned", (2.0,), "stopped"), ("fail", (), "failed")],
)
def test_a_result_that_is_added_is_there_as_it_was(world, state, values, after):
    name = world.add(state, values=values, started=3.0, ended=5.0, writing=X)
    trial = world.trials[name]
    assert (trial.state, trial.created_at, trial.finished_at) == (after, 3.0, 5.0)
    assert (trial.value, trial.further) == (values[0] if values else None, values[1:])
    assert (trial.failure is not None) == (state == "fail")
    assert not world.study().waiting
    assert not world.study().handed_out
    assert world.study().spec.n_trials == 4


def test_a_call_that_is_repeated_adds_nothing(world):
    name = world.add("waiting", call="s-1-0000.1")
    with pytest.raises(Refused, match="has added a trial already"):
        world.add("waiting", call="s-1-0000.1")
    assert world.study().calls == {"s-1-0000.1": name}
    with pytest.raises(Refused, match="there is a trial s-1-0001 already"):
        world.add("waiting", number=1)


def test_an_objective_writes_under_its_fence_and_a_late_one_nothing(world):
    fence = min(world.open)
    world.write("s-1-0000", fence=fence, writing=X)
    assert world.trials["s-1-0000"].params == (("x", 0.5),)
    with pytest.raises(Refused, match=r"fence 99 of s-1-0000 is not the open one"):
        world.write("s-1-0000", fence=99, writing=NOTE)
    world.return_()
    with pytest.raises(Refused, match="is completed already"):
        world.write("s-1-0000", fence=fence, writing=NOTE)


def test_a_user_may_annotate_any_trial_that_is_not_over_and_write_no_more_to_one_at_work(world):
    world.write("s-1-0000", writing=NOTE)
    for fields in ({"writing": X}, {"state": "complete", "values": (1.0,)}):
        with pytest.raises(Refused, match="is not the open one"):
            world.write("s-1-0000", **fields)


def test_a_trial_is_taken_once_and_only_its_user_ends_it(world):
    name = world.add("waiting")
    with pytest.raises(Refused, match="is not with its user"):
        world.write(name, state="complete", values=(1.0,))
    world.write(name, state="running")
    assert world.study().handed_out == [name]
    with pytest.raises(Refused, match="is at work already"):
        world.write(name, state="running")
    world.write(name, state="fail", reason="no power")
    assert world.trials[name].failure.message == "no power"


def test_where_the_scheduler_samples_users_add_no_trials_and_objectives_write_attributes():
    world = Kept()
    world.submit(local(sampler="random", tools=None))
    world.join("cpu.a.0")
    with pytest.raises(Refused, match="are proposed by its own sampler"):
        world.add("waiting")
    with pytest.raises(Refused, match="are proposed by its own sampler"):
        world.write("s-1-0000", writing=NOTE)
    world.write("s-1-0000", fence=min(world.open), writing=NOTE)


def ended(world):
    """The study is over; one of its trials waits and one is with its user."""
    taken = world.add("running")
    for _ in range(3):
        world.return_()
    assert world.finish.status == "complete"
    assert "s-1" not in world.engine.state.studies
    assert world.trials[taken].state == "running"
    return taken


def test_a_study_that_is_over_keeps_who_waits_and_who_was_handed_out(world):
    taken = ended(world)
    was = world.records["s-1"]
    world.at += 5.0
    world.reopen()
    assert world.study().handed_out == [taken]
    waits = world.add("waiting", number=4, writing=X)
    assert "s-1" not in world.engine.state.studies, "it is over again"
    assert not world.open, "nobody asked for another trial"
    world.reopen()
    assert (world.study().waiting, world.study().handed_out) == ([waits], [taken])
    world.write(taken, state="complete", values=(9.0,))
    assert "s-1" not in world.engine.state.studies
    assert world.trials[taken].value == 9.0
    assert world.records["s-1"] == was, "nothing has run since"
    assert world.trials[waits].state == "proposed"
    # Extended, it runs the one that waited, and then a new one.
    world.extend(6, over=True)
    assert [world.return_(), world.return_()] == [waits, "s-1-0005"]
    assert world.states() == ["completed"] * 6
    assert world.records["s-1"].status == "complete"


@pytest.mark.parametrize("end", [StudyCancelled, StudyFailed])
def test_a_study_that_did_not_end_well_stays_so_whatever_its_user_adds(world, end):
    reason = {"reason": "no such file"} if end is StudyFailed else {}
    world.send(end(at=2.0, study="s-1", **reason))
    was = world.records["s-1"]
    world.at = 9.0
    for state in ("waiting", "running", "complete"):
        world.reopen()
        world.add(state, values=(1.0,) if state == "complete" else ())
        assert "s-1" not in world.engine.state.studies
    now = world.records["s-1"]
    assert (now.status, now.finished_at, now.message) == (was.status, 2.0, was.message)
    assert world.states()[1:] == ["proposed", "running", "completed"]


def test_a_study_that_was_reopened_for_what_is_refused_is_over_as_it_was(world):
    ended(world)
    was = world.records["s-1"]
    world.reopen()
    with pytest.raises(Refused, match="is completed already"):
        world.write("s-1-0000", writing=NOTE)
    world.send(StudyStopped(at=9.0, study="s-1"))
    assert "s-1" not in world.engine.state.studies
    assert world.records["s-1"] == was


def test_a_study_that_an_older_ledger_left_open_runs_what_waits_when_it_is_extended(world):
    ended(world)
    world.reopen(status="running", finished_at=None)
    waits = world.add("waiting")
    assert world.study().waiting == [waits]
    world.extend(5, over=False)
    assert world.return_() == waits


def test_a_study_whose_trials_returned_without_a_report_has_succeeded_when_it_is_reopened(world):
    taken = ended(world)
    world.reopen()
    world.write(taken, state="fail", reason="no power")
    assert (world.records["s-1"].status, world.records["s-1"].message) == ("complete", "")


def test_a_study_goes_on_with_another_objective_when_nothing_runs(world):
    other = Code("c:d", "", "")
    with pytest.raises(Refused, match="runs trials of another objective"):
        world.extend(4, over=False, code=other)
    ended(world)
    world.extend(5, over=True, code=other)
    assert world.study().spec.code == other
    assert world.return_() == "s-1-0004"
    assert world.records["s-1"].status == "complete"


def test_while_a_user_trains_a_study_of_no_other_trials_takes_another_objective(world):
    ended(world)
    world.reopen(status="running", finished_at=None)
    world.extend(5, over=False, code=Code("c:d", "", ""))
    assert world.return_() == "s-1-0004"


def test_a_stopped_study_begins_no_more_trials_and_leaves_who_waits(world):
    waits = world.add("waiting")
    world.send(StudyStopped(at=0.0, study="s-1"))
    assert world.finish is None, "the trial at work goes on"
    assert world.return_() == "s-1-0000"
    assert (world.finish.status, world.trials[waits].state) == ("complete", "proposed")
    assert world.records["s-1"].spec.n_trials == 1


def test_a_cancelled_study_cancels_all_and_those_are_not_there_again(world):
    world.add("waiting")
    world.add("running")
    world.send(StudyCancelled(at=0.0, study="s-1"))
    assert world.states() == ["cancelled"] * 3
    world.reopen()
    assert (world.study().waiting, world.study().handed_out) == ([], [])


@pytest.mark.parametrize("over", [True, False])
def test_a_deleted_study_ends_once_and_its_name_is_free(world, over):
    if over:
        ended(world)
    record = replace(world.records["s-1"], finished_at=1.0)
    world.send(StudyDeleted(at=9.0, record=record))
    assert world.records["s-1"].status == "deleted"
    assert not world.open
    assert "s" not in world.engine.state.finished.values()
    with pytest.raises(Refused, match="there is no study s-1"):
        world.send(StudyDeleted(at=9.0, record=record))
    with pytest.raises(Refused):
        world.send(StudyWritten(at=9.0, study="s-2"))


def test_attributes_of_a_study_are_written_whether_it_is_over_or_not(world):
    world.send(StudyWritten(at=0.0, study="s-1", user_attrs=NOTE.user_attrs))
    ended(world)
    world.send(StudyWritten(at=9.0, study="s-1", system_attrs=NOTE.user_attrs))
    with pytest.raises(Refused, match="s-9 is not running"):
        world.send(StudyWritten(at=9.0, study="s-9"))
