"""Studies with every kind of sampler under fault: no trial is lost, and its writes stay.

A study of each kind runs while trainer, worker or scheduler are killed. Most sample in the process
of their objective. Those whose kind begins with ``hosted`` have a space, so their sampler runs in a
process next to the scheduler, which is killed, too.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from optuna import samplers
from optuna.artifacts import FileSystemArtifactStore, get_all_artifact_meta
from optuna.trial import TrialState
from penstock import Categorical, Float, Int, create_study
from penstock.app.client.study.study import Study
from penstock.app.host import locks
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader

from .faults import Faults
from .sampler_objective import STEPS, TEXT, Wanderer, traced

SPACE = {"x": Float(-4, 4, step=0.5), "n": Int(1, 8), "kind": Categorical(["a", "b", "c"])}
KINDS: dict[str, Callable[[], Any]] = {
    "tpe": lambda: samplers.TPESampler(seed=1, n_startup_trials=3, multivariate=True),
    "group": lambda: samplers.TPESampler(seed=1, n_startup_trials=3, multivariate=True, group=True),
    "nsga2": lambda: samplers.NSGAIISampler(seed=1, population_size=3),
    "nsga3": lambda: samplers.NSGAIIISampler(seed=1, population_size=3),
    "cmaes": lambda: samplers.CmaEsSampler(
        seed=1, n_startup_trials=2, warn_independent_sampling=False
    ),
    "gp": lambda: samplers.GPSampler(seed=1, n_startup_trials=3),
    "qmc": lambda: samplers.QMCSampler(
        seed=1, warn_independent_sampling=False, warn_asynchronous_seeding=False
    ),
    "brute force": lambda: samplers.BruteForceSampler(seed=1),
    "partial fixed": lambda: samplers.PartialFixedSampler({"n": 2}, samplers.TPESampler(seed=1)),
    "own": lambda: Wanderer(1),
    "hosted group": lambda: samplers.TPESampler(
        seed=1, n_startup_trials=3, multivariate=True, group=True
    ),
    "hosted own": lambda: Wanderer(1),
}
FAULTS = ("trainer", "worker", "scheduler")
#: Seconds in which a fault must find something to hit, and in which a study must end.
CHANCE, PATIENCE = 30.0, 120.0
#: Seconds between two looks.
LOOK = 0.1
SAMPLING = "penstock.tasks.objectives.sampling"


def submitted(kind: str, n_trials: int, folder: Path) -> Study:
    """A running study with this kind of sampler, whose artifacts are in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's, of samplers that may change
        study = create_study(study_name=f"faults {kind}", sampler=KINDS[kind]())
    space = SPACE if kind.startswith("hosted") else None
    study.submit(partial(traced, str(folder)), n_trials, space=space)
    return study


def strike(settings: Settings, study: Study, fault: str) -> None:
    """Kill one of the study's processes while it is at work, after a trial has ended."""
    faults = Faults(settings, random.Random(0))
    deadline = time.monotonic() + CHANCE
    try:
        while not _has_ended_trial(study) or not _hit(settings, faults, study, fault):
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing to hit with {fault} in {CHANCE:g} s")
            time.sleep(LOOK)
    finally:
        faults.close()


def _has_ended_trial(study: Study) -> bool:
    return any(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))


def _hit(settings: Settings, faults: Faults, study: Study, fault: str) -> bool:
    if fault == "trainer":  # the worker may have others, which run no trial
        running = [trial for trial in study.trials if trial.state is TrialState.RUNNING]
        return any(_killed(t.user_attrs["pid"]) for t in running if "pid" in t.user_attrs)
    if fault != "sampler":
        return faults.inject(fault) is not None
    scheduler = locks.pid_of(settings.run, "scheduler")
    children = psutil.Process(scheduler).children() if scheduler else []
    return any(_killed(each.pid) for each in children if SAMPLING in each.cmdline())


def _killed(pid: int) -> bool:
    try:
        psutil.Process(pid).kill()
    except psutil.NoSuchProcess:
        return False
    return True


def wait(study: Study) -> None:
    """Until the study is over."""
    deadline = time.monotonic() + PATIENCE
    while study.status == "running":
        if time.monotonic() > deadline:
            raise AssertionError(f"{study.study_name} is not over in {PATIENCE:g} s")
        time.sleep(LOOK)


def verdict(settings: Settings, study: Study, n_trials: int, folder: Path) -> dict[str, list[str]]:
    """Return what is ``lost``, ``doubled`` and ``wrong`` in a study that is over, in words."""
    trials, found = study.get_trials(), {"lost": [], "doubled": [], "wrong": []}
    store = FileSystemArtifactStore(folder)
    numbers = [trial.number for trial in trials if trial.state.name == "COMPLETE"]
    found["lost"] += [f"trial {n}" for n in range(n_trials) if n not in numbers]
    found["doubled"] += [f"trial {n}" for n in {*numbers} if numbers.count(n) > 1 or n >= n_trials]
    for trial in trials:
        name, params = f"trial {trial.number}", trial.params
        x = params["x"]
        if trial.value != x * x + params["n"] + (params["kind"] == "b"):
            found["wrong"].append(f"{name}: {trial.value} of {params}")
        for what, is_there in (
            ("its user attribute", trial.user_attrs.get("x") == x),
            ("its attribute of the study", study.user_attrs.get(name) == x),
            ("a report", trial.intermediate_values == {s: x + s for s in range(STEPS)}),
        ):
            if not is_there:
                found["lost"].append(f"{name}: {what}")
        metas = get_all_artifact_meta(trial, storage=study._storage)
        key = "lost" if not metas else "doubled"
        if len(metas) != 1:
            found[key].append(f"{name}: {len(metas)} artifacts")
            continue
        with store.open_reader(metas[0].artifact_id) as file:
            if file.read().decode() != TEXT.format(number=trial.number, x=x):
                found["wrong"].append(f"{name}: its artifact")
    rows = [(row.trial, row.epoch) for row in Reader(settings.ledger_url).epochs(study.id)]
    found["doubled"] += [f"epoch {row}" for row in {*rows} if rows.count(row) > 1]
    return found


def campaign(
    settings: Settings, folder: Path, tell: Callable[[str], None], n_trials: int = 16
) -> dict[str, Any]:
    """A study of each kind, hit once by each fault; how much is lost, doubled and wrong in all."""
    found: dict[str, list[str]] = {"lost": [], "doubled": [], "wrong": []}
    faults = 0
    for kind in KINDS:
        study, began = submitted(kind, n_trials, folder / kind), time.monotonic()
        for fault in (*FAULTS, *(["sampler"] if kind.startswith("hosted") else [])):
            strike(settings, study, fault)
            faults += 1
        wait(study)
        for name, what in verdict(settings, study, n_trials, folder / kind).items():
            found[name] += [f"{kind}: {each}" for each in what]
        tell(f"{kind}: {study.status} after {time.monotonic() - began:.0f} s")
    for each in (each for what in found.values() for each in what):
        tell(each)
    return {"kinds": len(KINDS), "faults": faults} | {n: len(what) for n, what in found.items()}
