"""``penstock env``: environments from requirements, named by their lock. Real pip, real uv."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.metadata import version

import pytest
from penstock.app.host.settings import load
from penstock.extensions.environments import virtual_environments
from penstock.extensions.environments.virtual_environments import create, find, listed
from penstock.profiling.base.errors import UsageError

from benchmarks._tiny_wheels import make_wheel


@pytest.fixture
def settings(tmp_path):
    return load(home=tmp_path / "home")


@pytest.fixture
def wheels(tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number in ("1.0", "2.0"):
        make_wheel(folder, "tiny", number)
    return folder


def file_of(wheels, *lines):
    file = wheels.parent / "requirements.txt"
    file.write_text("\n".join([f"--find-links {wheels}", "--no-index", *lines]))
    return file


def sees(made, expression):
    """What Python says there of an expression over ``tiny`` and ``torch``."""
    code = f"import tiny, torch, penstock.tasks.trainer.__main__; print({expression})"
    command = [f"{made.folder}/bin/python", "-P", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def made(settings, requirements, *, inherits=True):
    said = []
    return create(settings, requirements, inherits=inherits, note=said.append), said


def test_one_that_inherits_has_its_own_versions_in_front(settings, wheels):
    import torch

    one, said = made(settings, file_of(wheels, "tiny==1.0", "numpy"))
    assert said[0].endswith("with pip")
    assert sees(one, "tiny.VERSION, torch.__version__") == f"1.0 {torch.__version__}"
    assert one.packages == 1, "numpy is seen, and not installed again"
    other, _ = made(settings, file_of(wheels, "tiny==2.0"))
    assert sees(other, "tiny.VERSION") == "2.0"
    assert listed(settings) == [one, other]


def test_the_lock_is_the_name(settings, wheels):
    one, _ = made(settings, file_of(wheels, "tiny<2"))
    again, said = made(settings, file_of(wheels, "# a comment", "tiny==1.0"))
    assert again == one
    assert len(said) == 1, "nothing was installed"
    make_wheel(wheels, "tiny", "1.1")
    newer, _ = made(settings, file_of(wheels, "tiny<2"))
    assert newer.name != one.name
    assert sees(newer, "tiny.VERSION") == "1.1"
    make_wheel(wheels, "tiny", "1.1", code="VERSION = 'another file'\n")
    assert made(settings, file_of(wheels, "tiny<2"))[0].name != newer.name


def test_one_that_was_not_finished_is_made_anew(settings, wheels):
    one, _ = made(settings, file_of(wheels, "tiny==1.0"))
    record = settings.home / "environments" / one.name / "penstock.json"
    record.unlink()
    assert listed(settings) == []
    again, _ = made(settings, file_of(wheels, "tiny==1.0"))
    assert again.name == one.name
    assert find(settings, one.name[:5]) == again
    for name in ("", "no"):
        with pytest.raises(UsageError, match=f"allowed is the beginning of one of: {one.name}"):
            find(settings, name)


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_whole_one_has_penstock_in_it(settings, wheels, monkeypatch, tool):
    if tool == "uv" and shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    # This wheel stands for half a gigabyte of real ones.
    ours = version("penstock")
    make_wheel(wheels, "penstock", ours)
    monkeypatch.setattr(virtual_environments, "own_requirement", lambda: f"penstock=={ours}")
    if tool == "pip":
        monkeypatch.setattr(virtual_environments.shutil, "which", lambda *_, **__: None)
    one, said = made(settings, file_of(wheels, "tiny"), inherits=False)
    assert said[0].endswith(f"with {tool}")
    assert one.packages == 2
    lock = (settings.home / "environments" / one.name / "lock.txt").read_text()
    assert f"penstock=={ours}" in lock
    assert lock.count("--hash=sha256:") >= 2
    code = "import tiny, penstock; print(tiny.VERSION, penstock.VERSION)"
    python = f"{one.folder}/bin/python"
    out = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["2.0", ours]


def test_penstock_comes_from_where_this_one_was_installed(settings):
    said = virtual_environments.own_requirement()
    assert said.startswith(("penstock @ file:///", "penstock=="))


def test_what_cannot_be_installed_is_said(settings, wheels):
    with pytest.raises(UsageError, match="No matching distribution found for absent"):
        made(settings, file_of(wheels, "absent"))
    with pytest.raises(UsageError, match=r"REQUIREMENTS = .*none.txt"):
        made(settings, wheels / "none.txt")
    make_wheel(wheels, "penstock", "99.1")
    with pytest.raises(UsageError, match=r"no trainer can start in .*: its Penstock is 99\.1"):
        made(settings, file_of(wheels, "penstock==99.1"))
    assert listed(settings) == []
    assert not list((settings.home / "environments").glob(".temporary*"))


def test_where_none_was_made_none_is_found(settings):
    with pytest.raises(UsageError, match="allowed is one that `penstock env create` has made"):
        find(settings, "0")


def test_the_command_line(settings, wheels, monkeypatch):
    from penstock.app.cli.main import app
    from typer.testing import CliRunner

    monkeypatch.setenv("PENSTOCK_HOME", str(settings.home))

    def said(*arguments):
        run = CliRunner().invoke(app, ["env", *map(str, arguments)])
        assert run.exit_code == 0, run.output
        return run.stdout.strip()

    environment = said("create", file_of(wheels, "tiny==1.0"), "--inherit").splitlines()[-1]
    [facts] = json.loads(said("list", "--json"))
    assert environment == f"venv:{facts['folder']}"
    assert said("path", facts["name"][:4]) == facts["folder"]
    assert "inherits, and has 1 package" in said("list")
