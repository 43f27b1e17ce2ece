"""A trial whose objective ends by itself, and a study whose metric never comes."""

from __future__ import annotations

import pytest
from penstock.scheduler.model.early_failure import METRIC_LIMIT
from penstock.scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    PolicyChosen,
    TrialEnqueued,
    TrialReturned,
)
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.policies.names import POLICIES
from worlds.drive_world import World, check_invariants, spec

ASHA = spec(StrategySpec("asha", max_epochs=9, eta=3), contract="objective", n_trials=6)


@pytest.fixture
def world():
    world = World()
    world.join("cpu.a.0")
    return world


def attempt(world):
    dispatch = world.open[min(world.open)]
    world.at += 1.0
    segment = dispatch.segment
    return {"at": world.at, "trial": segment.trial, "fence": segment.fence}


def test_who_returns_early_is_complete_keeps_its_rung_and_is_promoted_no_further(world):
    """As in Optuna: its pruner leaves the values at the rungs, and the trial asks no more."""
    world.score = lambda number, epoch: -float(number)  # the first trial is the best at its rung
    world.submit(ASHA)
    world.run_segment()
    gone = world.engine.state.trials["s-1-0000"]
    assert gone.epoch == 1 and gone.state == "paused"
    while world.open[min(world.open)].segment.trial != "s-1-0000":
        world.run_segment()
    world.send(TrialReturned(**attempt(world), value=7.0))
    assert (gone.state, gone.value, gone.epoch) == ("completed", 7.0, 1)
    asha = world.engine.state.studies["s-1"].strategy
    assert asha.scores[0]["s-1-0000"] == 0.0
    world.run()
    assert world.finish.status == "complete"
    reached = world.epochs_by_trial()
    # Six at the rung: two of them are to go on, and the one that returned was one of the two.
    assert reached.pop("s-1-0000") == 1
    assert sorted(reached.values(), reverse=True) == [3, 1, 1, 1, 1]


def test_who_prunes_itself_is_stopped_with_its_last_value(world):
    world.submit(ASHA)
    fields = attempt(world)
    trial = world.engine.state.trials[fields["trial"]]
    world.send(world.epoch(world.open[fields["fence"]], 1, closes=False))
    world.send(TrialReturned(**fields, value=3.0, pruned=True))
    assert (trial.state, trial.value, trial.failure) == ("stopped", 3.0, None)
    fields = attempt(world)
    trial = world.engine.state.trials[fields["trial"]]
    world.send(TrialReturned(**fields, value=None, pruned=True))
    assert (trial.state, trial.value, trial.failure) == ("stopped", None, None)


def test_enqueued_names_that_were_never_asked_for_are_dropped_and_said(world):
    world.submit(spec(n_trials=2, contract="objective", space=None, strategy=StrategySpec()))
    world.send(TrialEnqueued(at=0.0, study="s-1", params=(("y", 2), ("tpyo", 3))))
    study = world.engine.state.studies["s-1"]
    trial = next(t for t in world.engine.state.trials.values() if t.enqueued)
    while world.open[min(world.open)].segment.trial != trial.id:
        world.send(TrialReturned(**attempt(world), value=1.0))
    world.send(TrialReturned(**attempt(world), value=1.0, unasked=("tpyo",)))
    assert dict(trial.params) == {"x": 0, "y": 2}
    assert study.message == f"enqueued for {trial.id}, which never asked for it: tpyo"


def fails(world, kind="metric"):
    world.send(AttemptFailed(**attempt(world), kind=kind, message="acc is not among loss"))


def test_a_metric_that_never_comes_ends_the_study_after_the_first_trials(world):
    world.submit(spec(n_trials=9))
    for _ in range(METRIC_LIMIT):
        assert world.finish is None
        fails(world)
    assert world.finish.status == "failed"
    record = world.engine.take_changes().studies["s-1"]
    assert record.message == (
        f"the first {METRIC_LIMIT} trials ended without v, as all would: acc is not among loss"
    )
    assert not world.open


def test_a_metric_that_came_once_may_come_again(world):
    world.submit(spec(n_trials=9))
    world.run_segment()
    for _ in range(METRIC_LIMIT + 1):
        fails(world)
    assert world.finish is None


def test_other_failures_end_trials_only(world):
    world.submit(spec(n_trials=9))
    for _ in range(METRIC_LIMIT + 1):
        fails(world, "exception")
    assert world.finish is None


def test_a_grid_with_fewer_points_than_trials_says_how_many_there_were(world):
    world.propose = lambda ask, _=World.propose: _(world, ask, n=4)
    world.submit(spec(n_trials=9, sampler="grid"))
    world.run()
    assert world.finish.status == "complete"
    record = world.engine.take_changes().studies["s-1"]
    assert record.message == "the grid has 4 points, and all were tried"


FULL = spec(StrategySpec("full", max_epochs=2), contract="objective", n_trials=2)


def last_epoch(world, last=2):
    """The trial at work reports up to the last epoch of the strategy, and goes on."""
    while world.open[min(world.open)].segment.last < last:
        world.run_segment()
    dispatch = world.open[min(world.open)]
    for epoch in range(dispatch.segment.first, last + 1):
        world.at += 0.5
        world.send(world.epoch(dispatch, epoch, closes=False))
    check_invariants(world.engine)
    return world.engine.state.trials[dispatch.segment.trial]


def test_after_its_last_epoch_an_objective_runs_to_its_return_and_that_counts(world):
    world.submit(FULL)
    trial = last_epoch(world)
    assert (trial.epoch, trial.state, trial.value) == (2, "running", 0.0)
    world.send(TrialReturned(**attempt(world), value=7.0))
    assert (trial.state, trial.value, trial.values) == ("completed", 7.0, {1: 0.0, 2: 0.0})
    last_epoch(world)
    world.send(TrialReturned(**attempt(world), value=8.0))
    assert world.finish.status == "complete"


def test_one_that_returns_at_the_last_rung_is_told_to_the_strategy_and_promotes_others(world):
    world.submit(spec(StrategySpec("asha", max_epochs=3, eta=3), contract="objective", n_trials=3))
    for _ in range(3):
        world.run_segment()
    trial = last_epoch(world, 3)
    assert (trial.id, trial.epoch) == ("s-1-0002", 3)
    scores = world.engine.state.studies["s-1"].strategy.scores
    assert len(scores) == 1, "it is told when it has returned"
    world.send(TrialReturned(**attempt(world), value=-50.0))
    assert trial.value == -50.0
    assert trial.values == {1: 2.0, 2: 2.0, 3: 2.0}
    assert world.finish.status == "complete"


@pytest.mark.parametrize("policy", POLICIES)
def test_an_attempt_that_is_lost_between_its_last_epoch_and_its_return_is_repeated(world, policy):
    world.submit(FULL)
    if policy != world.engine.state.policy:
        world.send(PolicyChosen(at=0.0, policy=policy))
    trial = last_epoch(world)
    world.send(AttemptLost(**attempt(world), reason="its lease ran out"))
    check_invariants(world.engine)
    if world.open[min(world.open)].segment.trial != trial.id:  # one epoch, or the whole other one
        last_epoch(world)
        world.send(TrialReturned(**attempt(world), value=8.0))
    again = world.open[min(world.open)].segment
    assert (again.trial, again.first, again.n) == (trial.id, 3, 1)
    world.send(TrialReturned(**attempt(world), value=7.0))
    assert (trial.state, trial.value, trial.epoch) == ("completed", 7.0, 2)
    if world.open:
        last_epoch(world)
        world.send(TrialReturned(**attempt(world), value=8.0))
    assert world.finish.status == "complete"


def test_an_objective_that_fails_after_its_last_epoch_has_failed(world):
    world.submit(FULL)
    trial = last_epoch(world)
    fails(world, "exception")
    assert (trial.state, trial.failure.kind) == ("failed", "exception")
    last_epoch(world)
    world.send(TrialReturned(**attempt(world), value=8.0))
    assert world.finish.status == "complete"
