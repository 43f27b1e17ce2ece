"""Times of studies: Penstock's compared with plain Optuna's on each of its usual storages.

All sides run in turns, within one run of the benchmark; services are up and trainers warm.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from optuna import pruners, samplers

from benchmarks.lib.optuna_sides import Work, ours, plain, readme_script, slots, two_processes
from benchmarks.optuna import tasks

RUNS = 7
STUDIES = {
    "trivial_100": Work(tasks.trivial, 100),
    "params_60x30": Work(tasks.thirty, 60),
    "reports_20x100": Work(tasks.reports, 20, others={"pruner": pruners.NopPruner()}),
    "reports_20x100_median": Work(tasks.reports, 20, others={"pruner": pruners.MedianPruner()}),
}
#: Studies of these libraries have the objective of ``_optuna_LIBRARY``, and these numbers of
#: trials. Optuna's examples have 100.
BOOSTED_BY = ("catboost", "xgboost", "lightgbm")
BOOSTED_TRIALS = (20, 100)
BUSY = Work(tasks.slow, 40, samplers.RandomSampler)

#: A side: seconds of the study.
Side = Callable[[Work], float]


def in_turns(sides: dict[str, Callable[[], float]], runs: int) -> dict[str, float]:
    """Medians of the sides' seconds, run in turns; what fails is said and left out."""
    spans: dict[str, list[float]] = {side: [] for side in sides}
    failed: set[str] = set()
    for _ in range(runs):
        for side, run in sides.items():
            if side in failed:
                continue
            try:
                spans[side].append(run())
            except Exception as error:  # whatever it is, the other sides go on
                print(f"  {side} failed: {type(error).__name__}: {str(error)[:300]}")
                failed.add(side)
    return {side: median(of) for side, of in spans.items() if side not in failed}


def beside(key: str, found: dict[str, float]) -> dict[str, float]:
    """``found`` by its names, in ms, and the ratio of ours to each other side."""
    figures = {f"{key}.{side}_ms": seconds * 1e3 for side, seconds in found.items()}
    if "ours" in found:
        others = {side: seconds for side, seconds in found.items() if side != "ours"}
        figures |= {f"{key}.ratio.{s}": found["ours"] / seconds for s, seconds in others.items()}
    return figures


def of_study(key: str, quick: bool) -> dict[str, float]:
    """One of ``STUDIES``: ours, a journal, SQLite, and SQLite in two processes."""
    work = STUDIES[key]
    with slots(2), two_processes() as processes:
        sides: dict[str, Side] = {
            "ours": lambda work: ours(work)[0],
            "journal": lambda work: plain(work, "journal")[0],
            "sqlite": lambda work: plain(work, "sqlite")[0],
            "sqlite_two": lambda work: processes.run(work, "sqlite")[0],
            "journal_two": lambda work: processes.run(work, "journal")[0],
        }
        runs = {side: partial(run, work) for side, run in sides.items()}
        in_turns({"ours": runs["ours"]}, 1)  # starts services and trainers
        return beside(key, in_turns(runs, 2 if quick else RUNS))


def boosting(library: str, n_trials: int, quick: bool) -> dict[str, float]:
    """Time our studies and those of two processes with a journal."""
    key = f"{library}_{n_trials}"
    if importlib.util.find_spec(library) is None:
        print(f"{key}: skipped, {library} is not installed", file=sys.stderr)
        return {}
    objective = importlib.import_module(f"benchmarks.optuna.{library}").objective
    work = Work(objective, n_trials, samplers.RandomSampler)
    with slots(2), two_processes() as processes:
        runs = {
            "ours": lambda: ours(work)[0],
            "journal_two": lambda: processes.run(work, "journal")[0],
        }
        in_turns(runs, 1)  # loads the library
        return beside(key, in_turns(runs, 1 if quick else RUNS))


def busy_share(quick: bool) -> dict[str, float]:
    """The trials' seconds over those of two slots, and of two processes with SQLite."""
    with slots(2), two_processes() as processes:
        runs = {
            "busy_share": lambda: ours(BUSY)[0],
            "busy_share.sqlite_two": lambda: processes.run(BUSY, "sqlite")[0],
        }
        in_turns(runs, 1)
        found = in_turns(runs, 1 if quick else RUNS)
    work = BUSY.n_trials * tasks.SLOW
    return {side: work / (2 * seconds) for side, seconds in found.items()}


def readme_20(quick: bool) -> dict[str, float]:
    """Time README's example as a script, services warm, and its objective by plain Optuna."""
    with slots(2), tempfile.TemporaryDirectory() as folder:
        script = readme_script(Path(folder), by_optuna=False)
        by_optuna = readme_script(Path(folder), by_optuna=True)
        runs = {"ours": partial(_script, script), "plain": partial(_script, by_optuna)}
        in_turns(runs, 1)
        return beside("readme_20", in_turns(runs, 1 if quick else RUNS))


def _script(path: Path) -> float:
    """Seconds of the process."""
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=path.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(ended.stderr[-500:])
    return time.perf_counter() - began


#: Every time by its key.
TIMES: dict[str, Callable[[bool], dict[str, Any]]] = {
    **{key: partial(of_study, key) for key in STUDIES},
    "readme_20": readme_20,
    "busy_share": busy_share,
    **{
        f"{library}_{n}": partial(boosting, library, n)
        for library in BOOSTED_BY
        for n in BOOSTED_TRIALS
    },
}
