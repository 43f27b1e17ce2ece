"""Importances: of trials of equal training, the same each time, and in no more than their time."""

from __future__ import annotations

import random
import time

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from penstock.app.server.optuna_bridge.importances import LEAST, MOST, importances
from penstock.scheduler.model.study import StrategySpec

ASHA = StrategySpec("asha", max_epochs=9)
SPACE = {
    "lr": FloatDistribution(1e-4, 1.0, log=True),
    "noise": FloatDistribution(0.0, 1.0),
    "act": CategoricalDistribution(["relu", "tanh"]),
}
STOPPED, COMPLETE = optuna.trial.TrialState.PRUNED, optuna.trial.TrialState.COMPLETE


def trials(n, *, reached=lambda number: 1, value=lambda params, epoch: params["lr"] * epoch):
    """Trials by number, with a value after each epoch until ``reached``; complete after 9."""
    draw = random.Random(0)
    found = []
    for number in range(n):
        params = {
            "lr": 10 ** draw.uniform(-4, 0),
            "noise": draw.random(),
            "act": draw.choice(["relu", "tanh"]),
        }
        values = {epoch: value(params, epoch) for epoch in range(1, reached(number) + 1)}
        state = COMPLETE if len(values) == 9 else STOPPED
        found.append(optuna.trial.create_trial(
            state=state, params=params, distributions=SPACE,
            value=values[len(values)], intermediate_values=values,
        ))  # fmt: skip
    return found


def test_they_are_of_the_highest_rung_that_enough_trials_have_reached():
    """After one epoch ``noise`` decides, after three ``lr``; too few reach nine."""

    def value(params, epoch):
        return params["noise"] if epoch < 3 else params["lr"]

    def reached(number):
        return 9 if number < LEAST - 1 else 3 if number < 30 else 1

    found = importances(trials(60, reached=reached, value=value), ASHA)
    assert (found.epoch, found.trials) == (3, 30)
    assert next(iter(found.shares)) == "lr"
    early = importances(trials(60, value=value), ASHA)
    assert (early.epoch, early.trials) == (1, 60)
    assert next(iter(early.shares)) == "noise"


def test_too_few_trials_or_equal_results_have_none():
    assert importances(trials(LEAST - 1), ASHA) is None
    assert importances(trials(LEAST), ASHA) is not None
    assert importances(trials(LEAST, value=lambda *_: 1.0), ASHA) is None


def test_without_rungs_only_completed_trials_are_compared():
    half = trials(40, reached=lambda number: 9 if number % 2 else 4)
    found = importances(half, StrategySpec())
    assert (found.epoch, found.trials) == (0, 20)


def test_a_large_study_is_thinned_out_and_gives_the_same_shares_again():
    many = trials(1000)
    began = time.process_time()
    found = importances(many, ASHA)
    assert time.process_time() - began < 10
    assert MOST / 2 < found.trials <= MOST
    assert importances(many, ASHA) == found
    assert next(iter(found.shares)) == "lr"
