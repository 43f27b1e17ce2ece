"""The objectives of ``python -m benchmarks.optuna``: as a user of Optuna writes them.

Trainers import this module by its name, so it imports neither Penstock nor a benchmark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import optuna

#: Seconds of a trial of ``slow``.
SLOW = 0.2

Objective = Callable[[optuna.Trial], float]


def sphere(trial: optuna.Trial) -> float:
    """Four dimensions; the least is 0."""
    return sum(trial.suggest_float(f"x{k}", -5.0, 5.0) ** 2 for k in range(4))


def branin(trial: optuna.Trial) -> float:
    """Three least points of 0.397887."""
    x, y = trial.suggest_float("x", -5.0, 10.0), trial.suggest_float("y", 0.0, 15.0)
    bend = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return bend**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


_ALPHA = (1.0, 1.2, 3.0, 3.2)
_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def hartmann6(trial: optuna.Trial) -> float:
    """Six dimensions; the least is -3.32237."""
    x = [trial.suggest_float(f"x{k}", 0.0, 1.0) for k in range(6)]
    return -sum(
        alpha * math.exp(-sum(a * (v - p) ** 2 for a, v, p in zip(row, x, at, strict=True)))
        for alpha, row, at in zip(_ALPHA, _A, _P, strict=True)
    )


def rastrigin(trial: optuna.Trial) -> float:
    """Four dimensions, many local minima; the least is 0."""
    x = [trial.suggest_float(f"x{k}", -5.12, 5.12) for k in range(4)]
    return sum(v * v - 10 * math.cos(2 * math.pi * v) + 10 for v in x)


def conditional(trial: optuna.Trial) -> float:
    """Return a value of parameters that depend on the kind and on a number; the least is 0."""
    kind = trial.suggest_categorical("kind", ["line", "plane", "layers"])
    if kind == "line":
        return 0.5 + abs(trial.suggest_float("slope", -3.0, 3.0))
    if kind == "plane":
        x, y = trial.suggest_float("x", -3.0, 3.0), trial.suggest_float("y", 1e-3, 1e1, log=True)
        return (x - 1.0) ** 2 + math.log10(y / 0.1) ** 2
    n = trial.suggest_int("layers", 1, 3)
    widths = [trial.suggest_int(f"width{k}", 4, 256, log=True) for k in range(n)]
    return 0.2 * n + sum(abs(math.log2(width / 32)) for width in widths)


def mixed(trial: optuna.Trial) -> float:
    """A number, a whole one, a step, a choice."""
    x = trial.suggest_float("x", -5.0, 5.0)
    n = trial.suggest_int("n", 1, 64, log=True)
    step = trial.suggest_float("step", 0.0, 1.0, step=0.25)
    choice = trial.suggest_categorical("choice", ["a", "b", None, 3])
    return x * x + math.log(n) + step + (choice == "a")


def finite(trial: optuna.Trial) -> float:
    """36 points, for samplers that try all."""
    n, choice = trial.suggest_int("n", 0, 11), trial.suggest_categorical("c", [1, 2, 3])
    return float((n - 5) ** 2 * choice)


def two_values(trial: optuna.Trial) -> tuple[float, float]:
    """Two objectives, of which not both can be least."""
    x, y = trial.suggest_float("x", 0.0, 5.0), trial.suggest_float("y", 0.0, 3.0)
    return 4 * x * x + 4 * y * y, (x - 5) ** 2 + (y - 5) ** 2


def trivial(trial: optuna.Trial) -> float:
    """One parameter, no work."""
    return trial.suggest_float("x", -10.0, 10.0) ** 2


def thirty(trial: optuna.Trial) -> float:
    """Thirty parameters, no work."""
    return sum(trial.suggest_float(f"x{k}", -1.0, 1.0) for k in range(30))


def reports(trial: optuna.Trial) -> float:
    """A hundred reports, after each of which it may be pruned; all alike, so that none is."""
    x = trial.suggest_float("x", 0.0, 1.0)
    for step in range(100):
        trial.report(1.0 / (1 + step), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return x


def pruned(trial: optuna.Trial) -> float:
    """Nine reports of a curve that its parameter decides; a pruner stops the worse half."""
    x = trial.suggest_float("x", 0.0, 1.0)
    for step in range(9):
        trial.report(x + 1.0 / (1 + step), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return x


def slow(trial: optuna.Trial) -> float:
    """It waits, which takes nothing of other trials' cores."""
    time.sleep(SLOW)
    return trial.suggest_float("x", -10.0, 10.0) ** 2


def lcbench(trial: optuna.Trial) -> float:
    """Percentage points that a network lacks on one of LCBench's tasks after all epochs."""
    from benchmarks.lib.surrogate import Surrogate

    params = {
        "batch_size": trial.suggest_int("batch_size", 16, 512, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
        "momentum": trial.suggest_float("momentum", 0.1, 0.99),
        "weight_decay": trial.suggest_float("weight_decay", 1e-5, 1e-1),
        "num_layers": trial.suggest_int("num_layers", 1, 5),
        "max_units": trial.suggest_int("max_units", 64, 1024, log=True),
        "max_dropout": trial.suggest_float("max_dropout", 0.0, 1.0),
    }
    return 100.0 - Surrogate("3945").finals([tuple(params.items())])[0]
