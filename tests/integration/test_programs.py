"""Modules and notebooks of Optuna's users by ``penstock run``, and ``%load_ext penstock``."""

from __future__ import annotations

import json
import subprocess
import sys

import nbclient
import nbformat
import pytest
from patience import PATIENCE

pytestmark = pytest.mark.integration

TRAIN = """
import sys
import optuna
from .data import OFFSET
from . import models

def objective(trial):
    from .late import SCALE
    assert __package__ == "mypkg"
    return models.net(trial.suggest_float("x", 0, 1)) * SCALE + OFFSET

if __name__ == "__main__":
    import json
    study = optuna.create_study(study_name="module")
    study.optimize(objective, n_trials=2)
    facts = [sys.argv[1:], sys.argv[0], sys.path[0], __package__, __spec__.name, len(study.trials)]
    print(json.dumps(facts))
    print(all(2 <= trial.value <= 4 for trial in study.trials))
"""

CELLS = (
    "%matplotlib inline\nimport optuna\nimport helper\n!pip install nothing",
    "def objective(trial):\n    return trial.suggest_float('x', 0, 1) + helper.ONE",
    "study = optuna.create_study(study_name='cells')\nstudy.optimize(objective, n_trials=2)",
    "len(study.trials), open('beside.txt').read()",
)
FAILS = (
    "import optuna",
    "def objective(trial):\n    x = trial.suggest_float('x', 0, 1)\n    return x + missing",
    "optuna.create_study(study_name='bad').optimize(objective, n_trials=2)",
)


def ran(site, folder, *arguments):
    """Run ``penstock run``; its exit code, and what it wrote on both outputs.

    Not with -P, under which ``python -m`` does not look in the working directory either.
    """
    command = [*site.inside, sys.executable, "-m", "penstock", "run", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=site.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "mypkg"
    folder.mkdir()
    for name, text in {
        "__init__": "",
        "data": "OFFSET = 2",
        "late": "SCALE = 2",
        "models": "def net(x):\n    return x\n",
        "train": TRAIN,
    }.items():
        (folder / f"{name}.py").write_text(text)
    return tmp_path


def test_a_module_is_run_as_python_runs_it_and_trainers_find_its_package(site, package):
    code, out, err = ran(site, package, "-m", "mypkg.train", "tune", "-m", "2")
    assert code == 0, err
    facts, within = out.splitlines()[:2]
    assert json.loads(facts) == [
        ["tune", "-m", "2"],
        str(package / "mypkg" / "train.py"),
        str(package),
        "mypkg",
        "mypkg.train",
        2,
    ]
    assert within == "True"
    assert "module complete" in out


def test_what_a_module_raises_is_shown_from_its_package_on(site, package):
    (package / "mypkg" / "data.py").write_text("import nonesuch")
    code, _, err = ran(site, package, "-m", "mypkg.train")
    assert code == 1
    assert "runpy" not in err
    assert err.count("  File ") == 2
    assert "mypkg.train raised ModuleNotFoundError" in err


def write(path, cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    nbformat.write(notebook, path)


@pytest.mark.extension("notebooks")
def test_a_notebook_is_run_cell_by_cell_in_its_folder(site, tmp_path):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    write(folder / "n.ipynb", CELLS)
    (folder / "helper.py").write_text("ONE = 1")
    (folder / "beside.txt").write_text("data")
    code, out, err = ran(site, tmp_path, "notebooks/n.ipynb")
    assert code == 0, err
    assert out.splitlines()[0] == "(2, 'data')"
    assert "n.ipynb, cell 1, line 4 is IPython's and was not run: !pip install nothing" in err
    assert "matplotlib" not in err
    assert "cells complete" in out


@pytest.mark.extension("notebooks")
def test_an_error_in_a_notebook_names_its_cell_and_line(site, tmp_path):
    write(tmp_path / "n.ipynb", FAILS)
    code, out, err = ran(site, tmp_path, "n.ipynb")
    assert code == 1
    assert f'File "{tmp_path}/n.ipynb, cell 2", line 3, in objective' in out + err
    assert "NameError: name 'missing' is not defined" in out + err
    write(tmp_path / "n.ipynb", [FAILS[0], "a = 1\nb = )"])
    code, _, err = ran(site, tmp_path, "n.ipynb")
    assert code == 1
    assert f'File "{tmp_path}/n.ipynb, cell 2", line 2' in err


# What the kernel's own libraries warn of is not ours.
@pytest.mark.extension("notebooks")
@pytest.mark.filterwarnings("ignore")
def test_in_jupyter_optunas_studies_are_penstocks_while_the_extension_is_loaded(site, tmp_path):
    cells = (
        "import optuna\n%load_ext penstock",
        "def objective(trial):\n    return trial.suggest_float('x', 0, 1)",
        (
            "study = optuna.create_study(study_name='kernel')\n"
            "study.optimize(objective, n_trials=2)\nprint(type(study).__module__)"
        ),
        "%reload_ext penstock\nprint(type(optuna.create_study()).__module__)",
        "%unload_ext penstock\nprint(type(optuna.create_study()).__module__)",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    environment = site.environment | {"PYTHONWARNINGS": "ignore"}
    nbclient.NotebookClient(notebook, timeout=int(PATIENCE)).execute(
        cwd=str(tmp_path), env=environment
    )
    printed = [
        each["text"] for cell in notebook.cells for each in cell.outputs if "stdout" in str(each)
    ]
    ours, plain = "penstock.app.client.study.study\n", "optuna.study.study\n"
    assert [text for text in printed if "study" in text] == [ours, ours, plain]
    assert site.reader.study("kernel").status == "complete"


def test_the_extension_costs_an_import_of_penstock_nothing():
    program = "import sys, penstock; print(sorted({'IPython', 'optuna'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode() == "[]\n"
