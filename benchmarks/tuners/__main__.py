"""Quality of the configurations that each tuner finds after n epochs, on LCBench's curves.

Simulated: the engine, its strategies, samplers and runner are the real ones, under simulated time
on four devices; times and results of an epoch come from YAHPO's surrogate of real curves
(``surrogate``). Every tuner gets the same configurations where its sampler is ``random``. A
study's recommendation after n epochs is the trial with the best value at its last epoch. Its regret
is the distance of that trial's accuracy after all 52 epochs from the best one known: of 2,000
random configurations and of all that any tuner tried on the task (percentage points). Means over
tasks and seeds.

For comparison, Optuna alone: its ``HyperbandPruner``, told after every epoch, and its random
search, on the same configurations one after another.

PBT is measured by half: curves of whole configurations say nothing of weights that are taken over,
so a forked trial is on its own configuration's curve from where it begins.

Deciding early: curve stopping's regret and epochs compared with training all to the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import optuna
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.spec.space import parse_space
from penstock.extensions.simulation.simulator import simulate
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import EpochReported, Proposed
from penstock.scheduler.model.study import Params, StrategySpec, StudySpec, trial_id
from penstock.scheduler.model.trial import Trial, TrialState

from benchmarks.lib.surrogate import EPOCHS, METRIC, SPACE, Surrogate, missing, spec_of
from testkit.results import Run

TASKS = ("3945", "7593", "126026", "167104")
TRIALS = 100
DEVICES = 4
#: Epochs after which the recommendation is looked at; 5,200 train all configurations to the end.
BUDGETS = (100, 200, 400, 800, 1600, 5200)
TUNERS: dict[str, tuple[StrategySpec, str]] = {
    "random": (StrategySpec("full", EPOCHS), "random"),
    "qmc": (StrategySpec("full", EPOCHS), "qmc"),
    "halving": (StrategySpec("halving", EPOCHS), "random"),
    "asha": (StrategySpec("asha", EPOCHS), "random"),
    "pasha": (StrategySpec("pasha", EPOCHS), "random"),
    "hyperband": (StrategySpec("hyperband", EPOCHS), "random"),
    "median": (StrategySpec("median", EPOCHS), "random"),
    "curve": (StrategySpec("curve", EPOCHS), "random"),
    "pbt": (StrategySpec("pbt", EPOCHS, 4), "random"),
    "asha_tpe": (StrategySpec("asha", EPOCHS), "tpe"),
    "bohb": (StrategySpec("hyperband", EPOCHS), "bohb"),
    "sync_bohb": (StrategySpec("hyperband", EPOCHS, overlap=False), "bohb"),
}

#: After each epoch that was trained, in order: the configuration and its value there.
Steps = list[tuple[Params, float]]


def ours(name: str, task: Surrogate, seed: int) -> Steps:
    """A study of this tuner."""
    strategy, sampler = TUNERS[name]
    spec = _spec(strategy, sampler, seed)
    devices = [Device(f"cpu.s.{n}", "s", "cpu", (n,), None, 1) for n in range(DEVICES)]
    trace = simulate([spec], devices, task).trace
    params: list[Params] = []
    steps = []
    for event in trace:
        if isinstance(event, Proposed):
            params += event.trials
        elif isinstance(event, EpochReported):
            number = int(event.trial.rpartition("-")[2])
            steps.append((params[number], dict(event.metrics)[METRIC]))
    return steps


def optunas(pruner: optuna.pruners.BasePruner, task: Surrogate, seed: int) -> Steps:
    """Optuna alone on the configurations that ``random`` gives this study."""
    spec = _spec(StrategySpec("full", EPOCHS), "random", seed)
    rows, *_ = SamplerHost().ask(spec, 0, TRIALS, [])
    study = optuna.create_study(
        direction="maximize", pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=seed)
    )
    dists = {name: _dist(text) for name, text in parse_space(SPACE)}
    steps = []
    for params in rows:
        study.enqueue_trial(dict(params))
        trial = study.ask(dists)
        curve = task.curve(params)
        for epoch, value in enumerate(curve, start=1):
            steps.append((params, value))
            trial.report(value, epoch)
            if trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(trial, curve[-1])
    return steps


def finals(steps: Steps, task: Surrogate) -> Iterator[float]:
    """The accuracy after all epochs of the recommendation after each step."""
    now: dict[Params, float] = {}
    best: Params | None = None
    for params, value in steps:
        now[params] = value
        if best is None or value >= now[best]:
            best = params
        elif params == best:  # its own next epoch was worse
            best = max(now, key=lambda each: now[each])
        yield task.curve(best)[-1]


def regrets(tasks: Sequence[str], seeds: int) -> dict[str, float]:
    """Regret by tuner and budget, epochs used by tuner, and what deciding early costs."""
    found: dict[str, list[float]] = defaultdict(list)
    early: list[float] = []
    for name in tasks:
        task = Surrogate(name)
        pool, *_ = SamplerHost().ask(_spec(StrategySpec(), "random", 10**6), 0, 2000, [])
        known = max(task.finals(list(pool)))
        runs: dict[str, list[list[float]]] = defaultdict(list)
        for seed in range(seeds):
            taken = {tuner: ours(tuner, task, seed) for tuner in TUNERS}
            band = optuna.pruners.HyperbandPruner(1, EPOCHS, 3)
            taken["optuna_hyperband"] = optunas(band, task, seed)
            taken["optuna_random"] = optunas(optuna.pruners.NopPruner(), task, seed)
            for tuner, steps in taken.items():
                runs[tuner].append(list(finals(steps, task)))
                found[f"epochs_used.{tuner}"].append(len(steps))
            known = max(
                [known, *(task.curve(params)[-1] for s in taken.values() for params, _ in s)]
            )
            early.append(runs["random"][-1][-1] - runs["curve"][-1][-1])
        for tuner, each in runs.items():
            for values in each:
                for budget in BUDGETS:
                    regret = known - values[min(budget, len(values)) - 1]
                    found[f"regret.{tuner}.{budget}"].append(regret)
    figures = {key: mean(values) for key, values in sorted(found.items())}
    share = figures["epochs_used.curve"] / figures["epochs_used.random"]
    return figures | {"decide_early.regret": mean(early), "decide_early.epochs_share": share}


def suggest_ms(runs: int) -> dict[str, float]:
    """Return ms for one more configuration at 1,000 trials, and the same of plain Optuna's TPE."""
    figures = {}
    for sampler in ("random", "qmc", "tpe", "bohb", "gp", "cmaes", "nsga2"):
        spec = _spec(StrategySpec("asha", EPOCHS), sampler, 0)
        host, trials = SamplerHost(), _thousand()
        _in_generations(sampler, trials)
        spans = []
        for index in range(runs if sampler != "gp" else 3):
            began = time.perf_counter()
            host.ask(spec, index, 1, trials)
            spans.append((time.perf_counter() - began) * 1e3)
        figures[f"suggest_ms.{sampler}.p50"] = median(spans[1:])
    for where, storage in (("memory", None), ("sqlite", "sqlite:///")):
        figures[f"optuna_suggest_ms.tpe.{where}.p50"] = _optuna_suggest(storage, runs)
    return figures


def _optuna_suggest(storage: str | None, runs: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.TPESampler(seed=0, multivariate=True, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler, storage=storage)
    dists = {name: _dist(text) for name, text in parse_space(SPACE)}
    for trial in _thousand():
        study.add_trial(
            optuna.trial.create_trial(
                params=dict(trial.params), distributions=dists, value=trial.value
            )
        )
    spans = []
    for _ in range(runs):
        began = time.perf_counter()
        study.ask(dists)
        spans.append((time.perf_counter() - began) * 1e3)
    return median(spans[1:])


def _dist(text: str) -> Any:
    return optuna.distributions.json_to_distribution(text)


def _thousand() -> list[Trial]:
    rows, *_ = SamplerHost().ask(_spec(StrategySpec(), "random", 0), 0, 1000, [])
    return [
        Trial(
            id=trial_id("tuners", number),
            study="tuners",
            number=number,
            params=params,
            created_at=0.0,
            state=TrialState.COMPLETED,
            epoch=1,
            value=float(dict(params)["momentum"] or 0),
            values={1: float(dict(params)["momentum"] or 0)},
        )
        for number, params in enumerate(rows)
    ]


def _in_generations(sampler: str, trials: list[Trial]) -> None:
    """Note with them what an evolution would have: generations of its own size."""
    size = {"cmaes": 9, "nsga2": 50}.get(sampler, 0)
    key = {"cmaes": "cma:generation", "nsga2": "NSGAIISampler:generation"}.get(sampler)
    for number, trial in enumerate(trials):
        trial.notes = json.dumps({key: number // size}) if size else ""


def _spec(strategy: StrategySpec, sampler: str, seed: int) -> StudySpec:
    return spec_of("tuners", n_trials=TRIALS, sampler=sampler, strategy=strategy, seed=seed)


def main() -> None:
    """Print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one task, two seeds")
    options = parser.parse_args()
    this_run = Run("tuners", baseline="random search trained to the end")
    if lacking := missing():
        print(f"tuners: skipped, {lacking}", file=sys.stderr)
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    figures: dict[str, Any] = {"simulated": True, "load_before": os.getloadavg()[0]}
    figures |= regrets(TASKS[:1] if options.quick else TASKS, 2 if options.quick else 20)
    figures |= suggest_ms(5 if options.quick else 21)
    figures["load_after"] = os.getloadavg()[0]
    for name, value in figures.items():
        print(
            f"{name:40} {value:10.4f}" if isinstance(value, float) else f"{name:40} {value!s:>10}"
        )
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
