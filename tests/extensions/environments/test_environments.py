"""The start of a trainer in an environment: its command, its variables, and missing programs."""

from __future__ import annotations

import os
import subprocess

import pytest
from penstock.app.node.launching.launch import ARGUMENTS, CannotStart
from penstock.app.node.sessions.endings import VERSION, unfit
from penstock.extensions.environments import launching as environments
from penstock.extensions.environments.launching import launch, why_no_rootfs

WORKERS = {"PATH": os.environ["PATH"], "PYTHONPATH": "/workers", "PYTHONHOME": "/x", "OURS": "1"}


def test_a_venv_does_not_see_what_is_on_the_workers_path(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to("/bin/sh")
    command, variables, wrapped = launch(f"venv:{tmp_path}", WORKERS)
    assert command == (str(python), *ARGUMENTS)
    assert not wrapped
    assert variables == {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(tmp_path),
        "OURS": "1",
        "PENSTOCK_TRAINER_ENVIRONMENT": f"venv:{tmp_path}",
    }


@pytest.mark.parametrize(
    ("environment", "advice"),
    [
        ("venv:/v", f"/v/bin/python -m pip install penstock=={VERSION}"),
        ("rootfs:/r", f"put penstock=={VERSION} into the root, where its own python3 finds it"),
        ("command:run", f"the Python that it starts needs penstock=={VERSION}"),
    ],
)
def test_where_penstock_is_missing_the_advice_is_for_that_kind_of_environment(environment, advice):
    assert str(unfit(environment, 1, "No module named 'penstock'")).endswith(advice)


def test_the_trainer_is_appended_to_the_words_of_a_command():
    command, variables, wrapped = launch("command:env 'A=b c'", WORKERS)
    assert command[0].endswith("/env")
    assert command[1:] == ("A=b c", "python3", *ARGUMENTS)
    assert wrapped
    assert variables["PYTHONNOUSERSITE"] == "1"
    assert "PYTHONPATH" not in variables


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ("venv:/no/such", "there is no such folder"),
        ("venv:/tmp", "no bin/python"),
        ("rootfs:/no/such", "there is no such folder"),
        ("rootfs:/tmp", "there is no usr folder"),
        ("command:no-such-program", "there is no program no-such-program"),
        ("command:'", "No closing quotation"),
        ("venv:/a\0b", "there is no such folder"),
        ("docker:image", "this worker knows venv, rootfs, command"),
    ],
)
def test_what_is_not_there_is_said(monkeypatch, environment, words):
    monkeypatch.setattr(environments.shutil, "which", _found)
    with pytest.raises(CannotStart, match=words):
        launch(environment, WORKERS)


def _found(program, path=None):
    return None if program == "no-such-program" else f"/usr/bin/{program}"


@pytest.mark.parametrize(("kept", "apart"), [("var/lib/penstock", "var/lib"), ("opt/p", "opt")])
def test_a_state_folder_in_a_folder_of_the_system_is_kept(monkeypatch, tmp_path, kept, apart):
    root = tmp_path / "root"
    for each in ("usr/bin", "var/lib/apt", "var/log", "opt/tool", "home/nobody", kept):
        (root / each).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    monkeypatch.setattr(environments.shutil, "which", _found)
    real = environments.Path.is_dir
    monkeypatch.setattr(environments.Path, "is_dir", lambda p: str(p) == f"/{kept}" or real(p))
    said = " ".join(launch(f"rootfs:{root}", {**WORKERS, "PENSTOCK_HOME": f"/{kept}"}).command)
    assert "--symlink usr/bin /bin" in said
    assert f"--ro-bind {root}/usr /usr" in said
    assert f"--bind /{kept} /{kept}" in said
    assert f"--ro-bind {root}/{apart} /{apart}" not in said
    for below in (root / apart).iterdir():
        assert (f"--ro-bind {below} /{apart}/{below.name}" in said) == (
            below.name != kept.split("/")[-1]
        )
    assert "/home/nobody" not in said, "homes are the node's"
    assert "--dev-bind /dev /dev" in said


def test_whether_a_node_can_start_roots_is_tried(monkeypatch):
    monkeypatch.setattr(environments.shutil, "which", lambda _: None)
    assert why_no_rootfs() == "bwrap is not installed on its node"
    monkeypatch.setattr(environments.shutil, "which", lambda _: "/bin/true")
    assert why_no_rootfs() == ""
    monkeypatch.setattr(environments.shutil, "which", lambda _: "/bin/ls")
    assert "bwrap does not work on its node: " in why_no_rootfs()

    def hangs(*_, **__):
        raise subprocess.TimeoutExpired("bwrap", 10.0)

    monkeypatch.setattr(environments.subprocess, "run", hangs)
    assert "timed out after 10" in why_no_rootfs()
