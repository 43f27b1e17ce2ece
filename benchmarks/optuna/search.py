"""Results and draws of Penstock's studies against plain Optuna's, with Optuna's samplers.

``search_ratio``: after equal trials, the distance of the best value from the least possible one
(regret), ours over Optuna's, with its default sampler, two slots against two processes. The figure
is the geometric mean over tasks and seeds, with its 95 % interval by the bootstrap, which draws
each task's seeds again. ``beside_none`` is the share of trials that began when all earlier ones had
ended, ours and theirs: two processes that wait for the lock of a journal run objectives of
microseconds one after another.

``same_draws``: with one slot and a sampler of one seed, the share of studies whose trials have the
same parameters, values and states as plain Optuna's, one after another.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from statistics import fmean
from typing import Any

import optuna
from optuna import samplers

from benchmarks.lib.optuna_sides import TwoProcesses, Work, ours, plain, slots, two_processes
from benchmarks.lib.surrogate import missing
from benchmarks.optuna import tasks
from testkit.results import estimate

Trials = Sequence[optuna.trial.FrozenTrial]

#: Trials of a study.
TRIALS = 60
#: Task: its least value, and the regret below which two results count as equal.
LEAST: dict[str, tuple[float, float]] = {
    "sphere": (0.0, 1e-6),
    "branin": (0.397887, 1e-6),
    "hartmann6": (-3.32237, 1e-6),
    "rastrigin": (0.0, 1e-6),
    "conditional": (0.0, 1e-6),
    "lcbench": (0.0, 1e-2),
}
RESAMPLES = 2000


def regret(task: str, best: float) -> float:
    """Return the distance of ``best`` from the least value of the task, or its floor if larger."""
    least, floor = LEAST[task]
    return max(best - least, floor)


def interval(logs: dict[str, list[float]]) -> tuple[float, float, float]:
    """Geometric mean of ratios, whose logarithms are given by task, and its 95 % interval."""
    chance = Random("penstock optuna")
    means = sorted(
        fmean(fmean(chance.choices(of, k=len(of))) for of in logs.values())
        for _ in range(RESAMPLES)
    )
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]
    middle = fmean(fmean(of) for of in logs.values())
    return math.exp(middle), math.exp(low), math.exp(high)


def search_ratio(quick: bool) -> dict[str, Any]:
    """The figures; each task's own geometric mean, too."""
    names = list(LEAST)
    if lacking := missing():
        print(f"search_ratio: LCBench's curves are left out, {lacking}", file=sys.stderr)
        names.remove("lcbench")
    logs: dict[str, list[float]] = {}
    figures: dict[str, Any] = {}
    alone: dict[str, list[float]] = {"ours": [], "theirs": []}
    with slots(2), two_processes() as processes:
        for name in names:
            logs[name] = []
            for seed in range(5 if quick else 100):
                mine, theirs = _both(name, seed, processes)
                logs[name].append(math.log(_best(name, mine) / _best(name, theirs)))
                alone["ours"].append(_beside_none(mine))
                alone["theirs"].append(_beside_none(theirs))
            figures[f"search_ratio.{name}"] = math.exp(fmean(logs[name]))
    figures["search_ratio"] = estimate(*interval(logs))
    return figures | {f"search_ratio.beside_none.{side}": fmean(of) for side, of in alone.items()}


def _both(task: str, seed: int, processes: TwoProcesses) -> tuple[Trials, Trials]:
    """The trials of our study, and of Optuna's."""
    work = Work(getattr(tasks, task), TRIALS, seed=seed)
    _, theirs = processes.run(work, "journal")
    _, study = ours(work)
    return study.get_trials(deepcopy=False), theirs


def _best(task: str, trials: Trials) -> float:
    return regret(task, min(trial.values[0] for trial in trials))


def _beside_none(trials: Trials) -> float:
    """The share of trials that began when all earlier ones had ended."""
    ends = sorted(trial.datetime_complete for trial in trials)
    return fmean(bisect_right(ends, trial.datetime_start) >= trial.number for trial in trials)


#: Name: the sampler, its objectives. What all of them are given besides is the seed.
DRAWS: dict[str, tuple[Callable[..., Any], tuple[Callable[..., Any], ...]]] = {
    "random": (samplers.RandomSampler, (tasks.mixed, tasks.conditional)),
    "tpe": (samplers.TPESampler, (tasks.mixed, tasks.conditional, tasks.pruned)),
    "tpe_multivariate": (
        partial(samplers.TPESampler, multivariate=True),
        (tasks.mixed, tasks.conditional),
    ),
    "tpe_univariate": (
        partial(samplers.TPESampler, multivariate=False),
        (tasks.mixed, tasks.conditional),
    ),
    "tpe_group": (
        partial(samplers.TPESampler, multivariate=True, group=True),
        (tasks.mixed, tasks.conditional),
    ),
    "cmaes": (samplers.CmaEsSampler, (tasks.sphere, tasks.mixed)),
    "nsga2": (partial(samplers.NSGAIISampler, population_size=8), (tasks.two_values,)),
    "qmc": (partial(samplers.QMCSampler, scramble=True), (tasks.sphere, tasks.mixed)),
    "gp": (samplers.GPSampler, (tasks.branin,)),
    "brute_force": (samplers.BruteForceSampler, (tasks.finite,)),
    "grid": (
        partial(samplers.GridSampler, {"n": list(range(12)), "c": [1, 2, 3]}),
        (tasks.finite,),
    ),
}


def same_draws(quick: bool) -> dict[str, float]:
    """The share of equal studies, in all and by sampler."""
    same: dict[str, list[bool]] = {}
    with slots(1):
        for name, (sampler, objectives) in DRAWS.items():
            same[name] = [
                _same(name, sampler, objective, seed, quick)
                for objective in objectives
                for seed in range(1 if quick else 5)
            ]
    figures = {f"same_draws.{name}": fmean(found) for name, found in same.items()}
    return figures | {"same_draws": fmean(each for found in same.values() for each in found)}


def _same(
    name: str, sampler: Callable[..., Any], objective: Callable[..., Any], seed: int, quick: bool
) -> bool:
    others: dict[str, Any] = {}
    if objective is tasks.two_values:
        others = {"directions": ["minimize", "minimize"]}
    if objective is tasks.pruned:
        others = {"pruner": optuna.pruners.MedianPruner(n_startup_trials=3)}
    n = 15 if quick or name == "gp" else 40
    work = Work(objective, n, sampler, seed, others)
    theirs = _drawn(plain(work, "memory")[1])
    try:
        mine = _drawn(ours(work)[1])
    except Exception as error:  # whatever it is, it is not what Optuna draws
        where = f"{type(error).__name__}: {error}"
    else:
        if theirs == mine:
            return True
        pairs = enumerate(zip(theirs, mine, strict=False))
        at = next((f"trial {k}" for k, (one, other) in pairs if one != other), None)
        where = at or f"{len(theirs)} and {len(mine)} trials"
    print(f"  {name}, {objective.__name__}, seed {seed} differs: {where[:300]}")
    return False


def _drawn(study: optuna.Study) -> list[tuple[Any, ...]]:
    """Return the fields of each trial that are compared."""
    return [(t.number, t.state, t.params, t.values) for t in study.get_trials(deepcopy=False)]
