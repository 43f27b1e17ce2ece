"""The strangers' scripts: how each is run, and what must be the same under ``penstock run``.

A script's last lines are compared with numbers left out, since trials may come in another order.
``holds`` are what its own output must show on either side. ``about`` is what a sentence before the
first trial must name, where a script cannot be the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

#: Something that a script's standard output shows.
Shows = Callable[[str], bool]


@dataclass(frozen=True)
class Case:
    """One script with its arguments, as they follow ``python`` and ``penstock run``."""

    name: str
    command: tuple[str, ...]
    #: Its folder within the scripts'.
    folder: str = "."
    #: Modules that must be there.
    needs: tuple[str, ...] = ()
    #: Number of its last lines that are compared.
    tail: int = 1
    holds: Shows = lambda out: True
    about: str = ""
    #: Pattern of the number of trials, where that must be equal.
    trials: str = ""
    #: More trials than it wants: what it wants, what it has.
    wanted: Callable[[str, str], int] | None = None
    #: True if it fails by Python alone, as expected.
    fails: bool = False
    quick: bool = False


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else -1


def shows(pattern: str, least: int = 1) -> Shows:
    """Return a check that the number in ``pattern`` is ``least`` or more."""
    return lambda out: _number(pattern, out) >= least


def equal(*patterns: str) -> Shows:
    """Return a check that the numbers in all ``patterns`` are the same."""
    return lambda out: len({_number(each, out) for each in patterns}) == 1


def stopped_at(plain: str, ours: str) -> int:
    """Return the number of trials when ``njobs_stop`` is satisfied."""
    return _number(r"good enough at (\d+)", ours) + 1


CASES = (
    Case("hf_hpsearch", ("hf_hpsearch.py",), needs=("transformers", "accelerate")),
    Case("hf_hpsearch_main", ("hf_hpsearch_main.py",), needs=("transformers", "accelerate")),
    Case("optuna_search_cv", ("optuna_search_cv.py",), tail=2, trials=r"trials (\d+)", quick=True),
    Case("optuna_search_cv_study", ("optuna_search_cv_study.py",), tail=2, trials=r"trials (\d+)"),
    Case("lgb_tuner", ("lgb_tuner.py",), needs=("lightgbm",), tail=2, about="Study itself"),
    Case(
        "lgb_tuner_cv",
        ("lgb_tuner_cv.py",),
        needs=("lightgbm",),
        trials=r"trials (\d+)",
        about="Study itself",
    ),
    Case(
        "hydra_sweep",
        ("sphere.py", "--multirun"),
        folder="hydra_sweep",
        needs=("hydra", "hydra_plugins.hydra_optuna_sweeper"),
    ),
    Case("sktime_tune", ("sktime_tune.py",), needs=("sktime", "statsmodels"), tail=2),
    Case(
        "rlzoo",
        (
            *("-m", "rl_zoo3.train", "--algo", "a2c", "--env", "CartPole-v1", "-n", "600"),
            *("-optimize", "--n-trials", "4", "--n-jobs", "2", "--n-startup-trials", "2"),
            *("--n-evaluations", "2", "--eval-episodes", "2"),
        ),
        needs=("rl_zoo3", "gymnasium"),
    ),
    Case(
        "lightning_prune",
        ("lightning_prune.py",),
        needs=("lightning",),
        trials=r"finished trials: (\d+)",
    ),
    *(
        Case(f"boost_prune_{name}", ("boost_prune.py", name), needs=(module,))
        for name, module in (("xgb", "xgboost"), ("lgb", "lightgbm"), ("cat", "catboost"))
    ),
    Case("neuralforecast_auto", ("neuralforecast_auto.py",), needs=("neuralforecast",)),
    Case("pickle_best", ("pickle_best.py",), trials=r"trials (\d+)", quick=True),
    Case("import_as", ("import_as.py",), trials=r"^(15) ", quick=True),
    Case("big_data", ("big_data.py",), trials=r"trials (\d+)"),
    Case("pool_spawn", ("pool_spawn.py",), trials=r"trials (\d+)"),
    Case("ask_tell", ("ask_tell.py",), trials=r"^(15) ", quick=True),
    Case("failing", ("failing.py",), fails=True, tail=0, quick=True),
    Case(
        "package_wrapped",
        ("run_train.py", "tune", "--n-trials", "6"),
        folder="pkgproj",
        trials=r"trials (\d+)",
    ),
    Case(
        "package_module",
        ("-m", "mypkg.train", "tune", "--n-trials", "6"),
        folder="pkgproj",
        trials=r"trials (\d+)",
        quick=True,
    ),
    Case(
        "lgb_cv_kaggle",
        ("lgb_cv_kaggle.py",),
        needs=("lightgbm",),
        trials=r"finished trials: (\d+)",
        holds=equal(r"finished trials: (\d+)", r"in the list: (\d+)"),
        about="scores",
    ),
    Case(
        "mlp_tabular",
        ("mlp_tabular.py",),
        tail=2,
        holds=lambda out: "BEST inf" not in out,
        about="BEST",
        trials=r"loaded (\d+)",
    ),
    Case(
        "mp_sqlite",
        ("mp_sqlite.py",),
        wanted=lambda plain, ours: _number(r"trials (\d+)", plain),
        quick=True,
    ),
    Case(
        "njobs_stop",
        ("njobs_stop.py",),
        wanted=stopped_at,
        holds=equal(r"trials (\d+)", r"COUNT (\d+)"),
        about="COUNT",
        quick=True,
    ),
    Case("user_attr_model", ("user_attr_model.py",), trials=r"trials (\d+)"),
    Case(
        "sk_pipeline",
        ("sk_pipeline.py",),
        tail=2,
        holds=shows(r"history (\d+)", 12),
        about="history",
    ),
    Case(
        "slow_load",
        ("slow_load.py",),
        tail=3,
        holds=equal(r"trials (\d+)", r"results (\d+)"),
        about="results",
    ),
    Case(
        "mnist_main",
        ("mnist_main.py", "--save-model", "--n-trials", "3", "--epochs", "1"),
        about="best",
    ),
    Case("notebook", ("nb.ipynb",), trials=r"trials (\d+)", quick=True),
    Case("retry_heartbeat", ("retry_heartbeat.py",)),
)
