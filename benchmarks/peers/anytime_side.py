"""A peer's part of ``python -m benchmarks.anytime``: plays studies that arrive on standard input.

    python benchmarks/peers/anytime_side.py SIDE

A line each way is a JSON object. A study has ``space`` (name, ``int`` or ``float``, low, high,
whether logarithmic), ``seed``, ``workers``, ``epochs`` and ``budget`` (seconds). To it come ``ask``
(a configuration, answered by ``[values, seconds]``) and in the end ``steps`` and ``decided``. At
its start a side says its version.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any

from _anytime_play import Curve, Job, Tuner, play

ETA = 3
METRIC = "accuracy"


class Optuna:
    """Optuna's default sampler, TPE, with a pruner; it stops and cannot resume.

    Its best case: a storage that costs nothing, and workers that decide at the same time.
    """

    shares, waits = False, True

    def __init__(self, given: dict[str, Any], pruner: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        made = {
            "hyperband": lambda: optuna.pruners.HyperbandPruner(1, given["epochs"], ETA),
            "asha": lambda: optuna.pruners.SuccessiveHalvingPruner(1, ETA),
        }[pruner]()
        self._state = optuna.trial.TrialState
        self._study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=given["seed"]),
            pruner=made,
        )
        kinds = {
            "int": optuna.distributions.IntDistribution,
            "float": optuna.distributions.FloatDistribution,
        }
        self._space = {
            name: kinds[kind](low, high, log=log) for name, kind, low, high, log in given["space"]
        }
        self._epochs = given["epochs"]

    def suggest(self) -> Job:
        trial = self._study.ask(self._space)
        return Job(trial, trial.params)

    def report(self, trial: Any, epoch: int, value: float) -> bool:
        trial.report(value, epoch)
        if epoch == self._epochs:
            self._study.tell(trial, value)
        elif trial.should_prune():
            self._study.tell(trial, state=self._state.PRUNED)
        else:
            return True
        return False


class SyneTune:
    """A scheduler of Syne Tune, called as its ``Tuner`` does, without its sleep and its delays."""

    shares, waits = True, False

    def __init__(self, given: dict[str, Any], scheduler: str) -> None:
        import numpy
        from syne_tune.backend.trial_status import Trial
        from syne_tune.config_space import lograndint, loguniform, randint, uniform

        logging.disable(logging.WARNING)
        numpy.random.seed(given["seed"])  # its brackets are drawn so
        kinds = {"int": (randint, lograndint), "float": (uniform, loguniform)}
        space = {name: kinds[kind][log](lo, hi) for name, kind, lo, hi, log in given["space"]}
        self._trial, self._epochs = Trial, given["epochs"]
        self._scheduler = _SCHEDULERS[scheduler](space, given)
        self._by_number = scheduler == "dyhpo"
        self._trials: dict[int, Any] = {}
        self._done: dict[int, int] = {}

    def suggest(self) -> Job | None:
        number = len(self._trials)
        found = self._scheduler.suggest(*((number,) if self._by_number else ()))
        if found is None:
            return None
        if found.spawn_new_trial_id:
            self._trials[number] = self._trial(number, found.config, 0.0)
            self._scheduler.on_trial_add(self._trials[number])
        else:
            number = found.checkpoint_trial_id
        return Job(number, self._trials[number].config, self._done.get(number, 0) + 1)

    def report(self, trial: int, epoch: int, value: float) -> bool:
        one, self._done[trial] = self._trials[trial], epoch
        result = {METRIC: value, "epoch": epoch}
        decision = self._scheduler.on_trial_result(one, result)
        if epoch == self._epochs:
            self._scheduler.on_trial_complete(one, result)
        elif decision != "CONTINUE":
            self._scheduler.on_trial_remove(one)
        else:
            return True
        return False


def _asha(space: dict[str, Any], given: dict[str, Any]) -> Any:
    from syne_tune.optimizer.baselines import ASHA

    return ASHA(space, METRIC, **_stopping(given))


def _bohb(space: dict[str, Any], given: dict[str, Any]) -> Any:
    from syne_tune.optimizer.baselines import BOHB

    return BOHB(space, METRIC, **_stopping(given))


def _stopping(given: dict[str, Any]) -> dict[str, Any]:
    said = {"time_attr": "epoch", "max_t": given["epochs"], "reduction_factor": ETA}
    return said | {"do_minimize": False, "random_seed": given["seed"]}


def _dyhpo(space: dict[str, Any], given: dict[str, Any]) -> Any:
    from syne_tune.optimizer.legacy_baselines import DyHPO

    said = {"max_t": given["epochs"], "mode": "max", "random_seed": given["seed"]}
    return DyHPO(space, METRIC, "epoch", **said)


_SCHEDULERS = {"asha": _asha, "bohb": _bohb, "dyhpo": _dyhpo}
#: By side: the distribution whose version is told, and how the tuner of a study is made.
SIDES: dict[str, tuple[str, Callable[[dict[str, Any]], Tuner]]] = {
    "optuna_hyperband": ("optuna", lambda given: Optuna(given, "hyperband")),
    "optuna_asha": ("optuna", lambda given: Optuna(given, "asha")),
    "syne_tune_asha": ("syne-tune", lambda given: SyneTune(given, "asha")),
    "syne_tune_bohb": ("syne-tune", lambda given: SyneTune(given, "bohb")),
    "syne_tune_dyhpo": ("syne-tune", lambda given: SyneTune(given, "dyhpo")),
}


def main() -> None:
    """Answer until standard input ends."""
    warnings.simplefilter("ignore")
    distribution, made = SIDES[sys.argv[1]]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the peer prints is none of ours

    def say(body: dict[str, Any]) -> None:
        out.write(json.dumps(body) + "\n")
        out.flush()

    say({"version": version(distribution)})
    for line in sys.stdin:
        given = json.loads(line)

        @cache
        def curve(params: tuple[tuple[str, Any], ...]) -> Curve:
            say({"ask": dict(params)})
            values, seconds = json.loads(sys.stdin.readline())
            return values, seconds

        played = play(
            made(given),
            given["workers"],
            given["budget"],
            lambda params: curve(tuple(params.items())),
        )
        say({"steps": played.steps, "decided": played.decided})


if __name__ == "__main__":
    main()
