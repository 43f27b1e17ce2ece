"""The durable states that are kept, and the trials that keep any."""

from __future__ import annotations

import pytest
from penstock.scheduler.model.decisions import Parent
from penstock.scheduler.model.study import Code, Objective, StrategySpec, StudySpec
from penstock.scheduler.model.trial import Trial, TrialState
from penstock.scheduler.policies.retention import best_at_the_end, best_completed, retained
from penstock.scheduler.strategies.base import rungs_of


def trial(number=0, state=TrialState.RUNNING, value=None, epoch=0, states=()):
    parents = tuple(Parent(n, f"u{n}", f"h{n}") for n in sorted(states, reverse=True))
    name = f"s-{number:04d}"
    return Trial(name, "s", number, (), 0.0, state, epoch=epoch, value=value, parents=parents)


def spec(direction, keep, *further):
    code = Code("m:f", "/", "0" * 64)
    return StudySpec(
        "s", "s", "objective", code, "a", direction, 9, None, keep_checkpoints=keep, further=further
    )


def epochs(states):
    return [state.epoch for state in states]


def test_a_trial_in_the_race_keeps_its_newest_states_and_those_of_its_rungs():
    plan = StrategySpec("halving", max_epochs=9)
    assert rungs_of(plan) == (1, 3, 9)
    running = trial(states=range(1, 9))
    assert epochs(retained(running, rungs_of(plan), best=False)) == [8, 7, 6, 3, 1]


@pytest.mark.parametrize("plan", [StrategySpec("full", max_epochs=9), StrategySpec("full")])
def test_without_rungs_only_the_newest_are_kept(plan):
    assert epochs(retained(trial(states=range(1, 9)), rungs_of(plan), best=False)) == [8, 7, 6]


@pytest.mark.parametrize("state", ["completed", "stopped", "failed", "cancelled"])
def test_a_trial_that_is_over_keeps_its_last_state_if_it_is_among_the_best(state):
    over = trial(state=TrialState(state), states=range(1, 5))
    assert epochs(retained(over, frozenset({1}), best=True)) == [4]
    assert retained(over, frozenset({1}), best=False) == ()


def test_the_best_are_completed_trials_by_value_and_then_by_number():
    done = TrialState.COMPLETED
    trials = [trial(n, done, value) for n, value in enumerate([0.5, 0.9, 0.9, 0.1])]
    trials.append(trial(4, TrialState.STOPPED, 1.0))
    assert best_completed(trials, spec("maximize", 2)) == ["s-0001", "s-0002"]
    assert best_completed(trials, spec("minimize", 1)) == ["s-0003"]
    assert best_at_the_end(trials, spec("maximize", 3)) == ["s-0001", "s-0002", "s-0000"]
    assert best_at_the_end(trials, spec("maximize", 0)) == []


def test_without_a_completed_trial_the_best_of_those_trained_longest_are_kept():
    stopped, cancelled = TrialState.STOPPED, TrialState.CANCELLED
    trials = [
        trial(0, stopped, 0.9, epoch=1),
        trial(1, cancelled, 0.4, epoch=3),
        trial(2, stopped, 0.5, epoch=3),
        trial(3, TrialState.FAILED, 1.0, epoch=3),
    ]
    assert best_at_the_end(trials, spec("maximize", 2)) == ["s-0002", "s-0001"]


def test_of_several_objectives_the_front_is_kept_and_never_what_violates_a_constraint():
    done, both = TrialState.COMPLETED, spec("maximize", 9, Objective("b", "minimize"))
    trials = [trial(n, done, value) for n, value in enumerate([0.5, 0.9, 0.9, 0.1, 1.0])]
    for each, size in zip(trials, [1.0, 7.0, 8.0, 2.0, 0.0], strict=True):
        each.further = (size,)
    trials[4].constraints = (("seconds", 0.5),)
    assert best_at_the_end(trials, both) == ["s-0001", "s-0000"]
    trials[4].constraints = (("seconds", 0.0),)
    assert best_completed(trials, both) == ["s-0004"]
