"""Libraries compute with the cores of their slot in a real trainer, unless user code says more."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from penstock.app.node.launching.variables import THREAD_VARIABLES, environment
from penstock.profiling.devices.device import Device
from trainers.trainer_process import TrainerProcess, segment
from user_code import thread_objectives

CORES = tuple(sorted(os.sched_getaffinity(0)))
LIBRARIES = (
    *("numpy", "scikit_learn", "joblib", "xgboost", "lightgbm", "polars"),
    *("tokenizers", "catboost", "catboost_told_all"),
)
TOLD = ("joblib_told", "catboost_told")
MODULES = {"scikit_learn": "sklearn"}


def slot_of(cores, slots):
    return environment(Device("cpu.n.0", "n", "cpu", cores, None, slots), os.environ)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    """In a slot of one core, on a device that has all of the machine's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("cwd"))  # CatBoost's cv writes to the working folder
        for name in THREAD_VARIABLES:
            patch.delenv(name, raising=False)
        for name, value in slot_of(CORES, len(CORES)).items():
            patch.setenv(name, value)
        with TrainerProcess(tmp_path_factory.mktemp("trainer") / "log") as trainer:
            yield trainer


def said(trainer, objective):
    library = objective.removesuffix("_all").removesuffix("_told")
    if find_spec(MODULES.get(library, library)) is None:
        pytest.skip(f"{library} is not installed")
    code = getattr(thread_objectives, objective)
    answer = trainer.carry_out(
        segment(code, trial=f"s-{(*LIBRARIES, *TOLD).index(objective):04d}")
    )[-1]
    assert answer["op"] == "returned", answer
    return answer["value"]


@pytest.mark.skipif(len(CORES) < 2, reason="on a machine of one core all take one")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_computes_with_the_cores_of_its_slot(trainer, library):
    assert said(trainer, library) == 1


@pytest.mark.parametrize("library", TOLD)
def test_what_user_code_says_stays(trainer, library):
    assert said(trainer, library) == 5


def test_each_slot_has_its_part_of_the_devices_cores(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    variables = slot_of(tuple(range(16)), 4)
    libraries = (*THREAD_VARIABLES, "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    assert {variables[name] for name in libraries} == {"4"}


def test_variables_of_the_user_stay_but_for_those_of_the_signature(monkeypatch):
    monkeypatch.setenv("POLARS_MAX_THREADS", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    variables = slot_of((0, 1), 1)
    assert (variables["POLARS_MAX_THREADS"], variables["OMP_NUM_THREADS"]) == ("7", "2")


def test_a_catboost_of_another_make_keeps_its_defaults_and_a_warning_is_logged(tmp_path):
    package = tmp_path / "catboost"
    package.mkdir()
    (package / "__init__.py").write_text("from .core import fit\n")
    (package / "core.py").write_text("def fit(x, thread_count=-1):\n    return thread_count\n")
    code = (
        "from penstock.tasks.system import catboost_threads;"
        "catboost_threads.install(); import catboost; print(catboost.fit(0), catboost.fit(0, 3))"
    )
    variables = {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "2 3\n"
    assert "catboost.core computes with as many threads as it likes" in run.stderr
