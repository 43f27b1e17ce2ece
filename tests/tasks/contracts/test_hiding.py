"""A file next to the script that hides a library is named, whichever module fails because of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from penstock.base.hiding import hidden
from penstock.tasks.contracts.code import file_digest
from penstock.wire.messages import CodeRef
from trainers.trainer_process import TrainerProcess, segment


def objective(trial):
    """Its code is another one's: see ``script_in_a_trainer``."""


def said_by(folder, *command):
    run = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    return run.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "what"), [("random", "Python's module random"), ("json", "Python's module json")]
)
def test_a_script_hears_which_file_to_rename(tmp_path, name, what):
    """One is imported when Penstock is, the other one when it is called."""
    (tmp_path / f"{name}.py").touch()
    (tmp_path / "script.py").write_text(
        "import penstock\npenstock.create_study(sampler='random')\n"
    )
    said = said_by(tmp_path, "script.py")
    assert said.startswith(f"penstock.UsageError: {tmp_path}/{name}.py has the name of {what}")
    assert "rename it" in said


def test_penstock_run_names_the_file_and_so_it_does_a_package(tmp_path):
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "__init__.py").touch()
    (tmp_path / "script.py").write_text("import redis.backoff\n")
    said = said_by(tmp_path, "-m", "penstock", "run", "script.py")
    assert "script.py raised ModuleNotFoundError" in said
    assert f"{tmp_path}/redis/__init__.py has the name of the library redis" in said


def test_code_in_a_trainer_hears_it_and_optuna_is_not_hidden_there(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import optuna, queue\ndef objective(trial):\n    return queue.ours\n")
    (tmp_path / "queue.py").write_text("ours = 1.0\n")
    (tmp_path / "optuna.py").touch()
    code = CodeRef(target=f"{script}:objective", path=str(tmp_path), digest=file_digest(script))
    task = segment(objective).model_copy(update={"code": code})
    with TrainerProcess(tmp_path / "log") as trainer:
        (failed,) = trainer.carry_out(task)
    assert failed["kind"] == "exception"
    assert f"{tmp_path}/queue.py has the name of Python's module queue" in failed["message"]


def test_a_module_of_the_users_own_that_lacks_a_name_hides_nothing(tmp_path, monkeypatch):
    (tmp_path / "ours.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError) as raised:
        from ours import nothing  # noqa: F401
    assert hidden(raised.value) == ""
    assert hidden(ImportError(name="queue")) == ""
