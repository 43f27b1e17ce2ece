"""A release: its files; and the wheel in an environment of its own, in folders of a user's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from patience import PATIENCE
from servers.installation import Installation

from testkit.package import FLOORS

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
def release(tmp_path_factory):
    """As `make dist` makes it, from a copy. The wheel is built from the source distribution."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    skipped = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=skipped)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(release):
    (built,) = release.glob("*.whl")
    return built


def shipped():
    """The files of the package, by their path in it."""
    floors = [path for floor in FLOORS for path in (ROOT / floor).rglob("*") if path.is_file()]
    root = [ROOT / name for name in ("__init__.py", "__main__.py", "py.typed")]
    return {
        path.relative_to(ROOT).as_posix()
        for path in (*root, *floors)
        if "__pycache__" not in path.parts
    }


def test_the_wheel_has_the_files_of_the_package_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    info = f"penstock-{version('penstock')}.dist-info"
    about = {name.removeprefix(f"{info}/") for name in names if name.startswith(info)}
    assert about == {
        *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE")
    }
    ours = {f"penstock/{name}" for name in shipped()}
    assert {name for name in names if not name.startswith(info)} == ours
    assert {Path(name).suffix for name in ours} == {
        *(".py", ".pyi", ".typed", ".lua", ".html", ".css", ".js", ".json", ".svg", ".md")
    }


def test_the_source_distribution_has_the_package_and_what_belongs_to_a_release(release):
    (file,) = release.glob("*.tar.gz")
    with tarfile.open(file) as packed:
        names = {
            name.partition("/")[2] for name in packed.getnames() if packed.getmember(name).isreg()
        }
    names = {name for name in names if not name.startswith("penstock.egg-info/")}
    about = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "SECURITY.md"}
    build = {"MANIFEST.in", "PKG-INFO", "constraints.txt", "pyproject.toml", "setup.cfg"}
    assert names == shipped() | about | build


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


@pytest.mark.extension("report")
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


def test_the_quickstart_runs_from_the_wheel_in_an_empty_folder(python, tmp_path):
    """With no setting but a state folder: what somebody does who has installed it by pip."""
    (code,) = re.findall(
        r"^```python run\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "train.py").write_text(code)
    shutil.copy(ROOT / "examples" / "digits.py", folder)
    command = python.with_name("penstock")
    options = {"cwd": folder, "env": {**bare(), "PENSTOCK_HOME": str(tmp_path / "home")}}
    try:
        for script in ("train.py", "digits.py"):
            run(command, "run", script, **options)
        facts = json.loads(run(command, "ls", "--json", **options))
        assert [each["status"] for each in facts] == ["complete", "complete"]
        assert [sum(each["trials"].values()) for each in facts] == [20, 27]
        assert run(command, "--version", **options).strip() == version("penstock")
    finally:
        run(command, "down", **options)
