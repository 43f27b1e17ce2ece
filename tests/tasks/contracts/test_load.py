"""Code is referred to by name, checked by digest, and imported again after an edit."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from functools import partial

import pytest
from penstock.base.errors import BackendError, UsageError
from penstock.tasks.contracts.code import file_digest, reference
from penstock.tasks.contracts.workspace import Workspace
from user_code import trainees


def test_a_class_of_a_module_is_referred_to_by_its_name_and_found_again(workspace):
    target, path, digest = reference(trainees.Small)
    assert target == "user_code.trainees:Small"
    assert workspace.load("s", target, path, digest) is trainees.Small


@pytest.fixture
def installed(tmp_path, workspace):
    """A library of two modules, imported as if for another user's code."""
    library = tmp_path / "site-packages" / "wares"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("WHOSE = 'installed'\n")
    (library / "part.py").touch()
    sys.path.append(str(library.parent))
    return importlib.import_module("wares.part") and sys.modules["wares"]


@pytest.mark.parametrize("own", ["wares.py", "wares/__init__.py", None])
def test_what_was_imported_ahead_for_others_gives_way_to_the_user_s_own_module(
    tmp_path, installed, own
):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text("def whose():\n    import wares\n    return wares.WHOSE\n")
    if own is not None:
        (folder / own).parent.mkdir(exist_ok=True)
        (folder / own).write_text("WHOSE = 'mine'\n")
    file = folder / "train.py"
    for ahead, expected in (((), "installed"), (("wares",), "mine" if own else "installed")):
        space = Workspace(ahead)
        whose = space.load("s", f"{file}:whose", str(folder), file_digest(file))
        assert whose() == expected
        sys.path.remove(str(folder))
        if not own:
            assert sys.modules["wares"] is installed


def test_a_class_in_a_package_is_looked_up_from_above_the_package(tmp_path):
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").touch()
    (inner / "__init__.py").write_text("class Net: ...\n")
    code = (
        "import outer.inner; from penstock.tasks.contracts.code import reference; "
        "print(*reference(outer.inner.Net)[:2])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.split()
    assert out == ["outer.inner:Net", str(tmp_path)]


def test_a_class_of_the_script_that_runs_is_referred_to_by_its_path(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from penstock.tasks.contracts.code import reference\nclass Net: ...\n"
        "if __name__ == '__main__': print(*reference(Net))\n"
    )
    out = subprocess.run(
        [sys.executable, script], check=True, capture_output=True, text=True
    ).stdout.split()
    assert out == [f"{script}:Net", str(tmp_path), file_digest(script)]


def nested():
    def objective(trial): ...

    return objective


def renamed(): ...


hidden, renamed = renamed, None


@pytest.mark.parametrize(
    "code",
    [lambda trial: 0.0, nested(), partial(trainees.objective), hidden],
    ids=["lambda", "local", "partial", "hidden"],
)
def test_code_that_no_trainer_could_import_has_no_name(code):
    assert reference(code) is None


def test_code_typed_in_a_console_has_no_name():
    code = (
        "def f(trial): ...\nfrom penstock.tasks.contracts.code import reference\n"
        "print(reference(f))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "None\n"


def test_importing_a_script_does_not_run_its_main_part(workspace, tmp_path):
    script = write(tmp_path / "train.py", "X = 1\nif __name__ == '__main__': raise SystemExit\n")
    assert workspace.load("s", f"{script}:X", str(tmp_path), file_digest(script)) == 1


def test_a_source_that_differs_or_is_missing_is_refused(workspace, tmp_path):
    script = write(tmp_path / "train.py", "X = 1\n")
    with pytest.raises(BackendError, match=r"train\.py on this node differs"):
        workspace.load("s", f"{script}:X", str(tmp_path), "0" * 64)
    with pytest.raises(BackendError, match=r"no .*gone\.py"):
        workspace.load("s", f"{tmp_path}/gone.py:X", str(tmp_path), "0" * 64)
    with pytest.raises(BackendError, match="no module no_such_module"):
        workspace.load("s", "no_such_module:X", str(tmp_path), "0" * 64)


def write(path, text, age=0):
    path.write_text(text)
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + age))
    return path


def test_a_helper_edited_between_two_studies_is_imported_anew(workspace, tmp_path):
    script = write(tmp_path / "train.py", "from helper_of_train import size\nX = size\n")
    helper = write(tmp_path / "helper_of_train.py", "size = 1\n")
    args = f"{script}:X", str(tmp_path), file_digest(script)
    assert workspace.load("first", *args) == 1
    write(helper, "size = 22\n", age=5)
    assert workspace.load("first", *args) == 1, "a study keeps the code it began with"
    assert workspace.load("second", *args) == 22


def test_two_folders_may_have_modules_of_one_name(workspace, tmp_path):
    found = []
    for turn, folder in enumerate(["a", "b", "a", "b"]):
        (tmp_path / folder).mkdir(exist_ok=True)
        script = tmp_path / folder / "train.py"
        if turn < 2:
            write(script, "import same_name\nX = same_name\n")
            write(tmp_path / folder / "same_name.py", f"where = {folder!r}\n")
        args = f"{script}:X", str(tmp_path / folder), file_digest(script)
        module = workspace.load(folder, *args)
        found.append((module.where, sys.modules["same_name"] is module))
    assert found == [("a", True), ("b", True), ("a", True), ("b", True)]


def test_code_whose_file_is_gone_is_refused_by_its_name(tmp_path, monkeypatch):
    file = tmp_path / "gone_since.py"
    file.write_text("def objective(trial): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    objective = importlib.import_module("gone_since").objective
    file.unlink()
    with pytest.raises(UsageError, match=rf"^objective was imported from {file}, .*put it back"):
        reference(objective)
