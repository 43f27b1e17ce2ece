"""The wheel, in an environment of its own, beside a user's files named as our packages are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from installation import Installation
from patience import PATIENCE

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
FILES = {
    "tasks.py": """
        def objective(trial):
            x = trial.suggest_float("x", 0, 1)
            trial.report(x, 0)
            return x * 2
    """,
    "app.py": """
        NAME = "in a wheel"
    """,
    "study.py": """
        import penstock
        from app import NAME
        from tasks import objective

        if __name__ == "__main__":
            study = penstock.create_study(study_name=NAME, sampler="random", seed=1)
            study.optimize(objective, n_trials=2)
            print("best", study.best_value)
    """,
}


def run(*command, **options):
    options |= {"capture_output": True, "text": True, "timeout": PATIENCE}
    ran = subprocess.run([*map(str, command)], check=False, **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, with this environment's setuptools: no network is needed."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    skipped = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=skipped)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, source)
    (built,) = folder.glob("penstock-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of an environment with the wheel and, from here, the libraries it needs."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    interpreter = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    # Named in a .pth, a folder's own .pth files (which lead to the sources here) are not read.
    (packages / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", interpreter)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, env=bare())
    return interpreter


def bare():
    """This environment without what leads to the sources here."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def shell(python, tmp_path_factory):
    """Runs a command in the user's folder, with services that end with this test file."""
    folder = tmp_path_factory.mktemp("users-folder")
    for name, text in FILES.items():
        (folder / name).write_text("\n".join(line[8:] for line in text.splitlines()))
    site = Installation(tmp_path_factory.mktemp("wheel-home"))
    environment = {**bare(), **site.settings.environment()}

    def shell(*command):
        return run(*command, cwd=folder, env=environment)

    yield shell
    shell(python, "-m", "penstock", "down")


def test_it_is_the_wheel_that_is_imported(shell, python):
    said = shell(python, "-P", "-c", "import penstock; print(penstock.__file__)")
    assert Path(said.strip()).is_relative_to(python.parents[1])


def test_a_study_runs_by_the_console_script_in_a_folder_with_other_tasks_and_app(shell, python):
    said = shell(python.with_name("penstock"), "run", "study.py")
    assert "best" in said
    assert "in a wheel complete" in said
    (facts,) = json.loads(shell(python, "-m", "penstock", "ls", "--json"))
    assert (facts["name"], facts["status"]) == ("in a wheel", "complete")
    assert facts["trials"] == {"completed": 2}
    report = next(line for line in said.splitlines() if line.startswith("report"))
    assert "<html" in Path(report.split()[1]).read_text()[:2000].lower()


def test_celery_finds_the_app_from_any_folder(shell, python):
    said = shell(python, "-m", "celery", "-A", "penstock", "report")
    assert "software -> celery" in said
    assert "broker.sock" in said
