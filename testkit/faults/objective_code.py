"""Objectives of ``objective_faults``, which trainers run: their values follow from parameters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import optuna

#: Steps of a trial, the step before which ``n`` is drawn, and seconds that a step takes.
STEPS, MIDDLE, PAUSE = 6, 3, 0.1
CHOICES = ("a", "b", "c")


def value_at(params: Mapping[str, Any], step: int) -> float:
    """Return the value that a trial with these parameters reports at ``step``."""
    n = params["n"] if step >= MIDDLE else 0
    return float(params["x"]) + 10.0 * CHOICES.index(params["kind"]) + 100.0 * n + 1000.0 * step


def values_of(params: Mapping[str, Any]) -> tuple[float, float]:
    """Return the two values that a trial of two objectives ends with."""
    return value_at(params, STEPS), -value_at(params, STEPS + 1)


def reporting(trial: Any, pause: float = PAUSE) -> float:
    """Report each step; one parameter is drawn in the middle, and an attribute has them all."""
    params = {
        "x": trial.suggest_float("x", -4.0, 4.0),
        "kind": trial.suggest_categorical("kind", CHOICES),
    }
    for step in range(STEPS):
        if step == MIDDLE:
            params["n"] = trial.suggest_int("n", 1, 8)
            trial.set_user_attr("params", params)
        time.sleep(pause)
        trial.report(value_at(params, step), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value_at(params, STEPS)


def paced(trial: Any) -> float:
    """Report each step, and take longer for it."""
    return reporting(trial, 4 * PAUSE)


def returning(trial: Any) -> tuple[float, float]:
    """Return two values, without a report: Optuna allows none where there are several."""
    params = {
        "x": trial.suggest_float("x", -4.0, 4.0),
        "kind": trial.suggest_categorical("kind", CHOICES),
    }
    time.sleep(PAUSE * STEPS / 2)
    params["n"] = trial.suggest_int("n", 1, 8)
    trial.set_user_attr("params", params)
    time.sleep(PAUSE * STEPS / 2)
    return values_of(params)
