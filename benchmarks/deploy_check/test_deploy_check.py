"""`make deploy-check` says what is missing, notices what is wrong, and is shown with its date."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from patience import PATIENCE

from benchmarks.deploy_check import __main__ as deploy_check
from benchmarks.deploy_check import study
from benchmarks.deploy_check.parts import DEPLOY, ROOT, Failed, Missing, Ran, program, said, until
from benchmarks.deploy_check.processes import processes
from benchmarks.deploy_check.study import EPOCHS, TRIALS, check_complete

EVERY = [(f"s-{t}", epoch) for t in range(TRIALS) for epoch in range(1, EPOCHS + 1)]


def facts(**other):
    return {"status": "complete", "message": "", "epochs": EVERY, "lost": 0} | other


def test_a_ledger_with_all_epochs_passes():
    check_complete(facts())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epochs": EVERY[1:]}, "missing"),
        ({"epochs": EVERY[EPOCHS:]}, "missing"),
        ({"epochs": [*EVERY, EVERY[0]]}, "twice"),
        ({"lost": 1}, "1 attempts were lost"),
        ({"status": "failed", "message": "why"}, "the study is failed: why"),
    ],
)
def test_a_ledger_that_lacks_one_fails(wrong, words):
    with pytest.raises(Failed, match=words):
        check_complete(facts(**wrong))


def test_a_program_that_is_missing_is_named_with_its_package():
    with pytest.raises(Missing, match=r"no no-such-program: apt install .* its-package"):
        program("no-such-program", "its-package")


def test_a_command_that_ends_badly_says_how():
    with pytest.raises(Failed, match=r"(?s)exit status 3.*why it did"):
        said([sys.executable, "-c", "print('why it did'); raise SystemExit(3)"])


def test_a_process_that_ended_is_told_from_its_log(tmp_path):
    code = "print('its words', flush=True); raise SystemExit(5)"
    told = pytest.raises(Failed, match=r"(?s)short ended with 5:.*its words")
    with told, processes(tmp_path) as running:
        process = running.start("short", [sys.executable, "-c", code])
        process.wait(PATIENCE)
        running.check_alive("short")


def test_all_processes_are_gone_after_a_failure(tmp_path):
    with pytest.raises(Failed, match="for this test"), processes(tmp_path) as running:
        process = running.start("long", ["sleep", "3600"])
        raise Failed("for this test")
    assert process.poll() is not None


@pytest.mark.parametrize(
    ("ends", "result", "kept"),
    [
        (Ran("7.0", "all of it"), "ok", False),
        (Missing("no x: apt install x"), "skipped: no x: apt install x", False),
        (Failed("first line\nmore"), "failed: first line", True),
    ],
)
def test_a_row_says_how_its_part_ended(ends, result, kept, monkeypatch, tmp_path):
    seen = []

    def run(folder):
        seen.append(folder)
        if isinstance(ends, Exception):
            raise ends
        return ends

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(deploy_check.PARTS, "mine", ("A system", run))
    row = deploy_check.carried_out("mine")
    assert (row.system, row.result) == ("A system", result)
    assert seen[0].exists() is kept
    assert f"| A system | {row.version} |" in deploy_check.table([row])


def test_a_part_that_there_is_not_is_refused():
    command = [sys.executable, "-m", "benchmarks.deploy_check", "no-such"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 2
    assert "no such part: no-such; there are slurm, tls, " in done.stderr


def test_the_readme_shows_each_part_and_when_it_ran():
    text = (DEPLOY / "README.md").read_text()
    for system, _ in deploy_check.PARTS.values():
        assert re.search(rf"^\| {system} \|.*\| (ok|skipped).* \| \d+ \|$", text, re.MULTILINE), (
            system
        )
    assert re.search(r"20\d\d-\d\d-\d\d", text)


def test_what_is_awaited_is_named_when_it_does_not_come(monkeypatch):
    monkeypatch.setattr("benchmarks.deploy_check.parts.PATIENCE", 0.2)
    with pytest.raises(Failed, match="the moon: not in"):
        until(lambda: False, "the moon")


def test_the_script_is_python_that_defines_the_code(tmp_path):
    compile(study.write_script(tmp_path).read_text(), "train.py", "exec")
