"""The campaign on a GPU, rehearsed on CPU cores: cut short at any moment, it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from patience import PATIENCE, until

from benchmarks.gpu import checks as gpu
from benchmarks.gpu_campaign import steps as gpu_campaign

pytestmark = pytest.mark.extension("nas", "memory", "simulation")

#: The campaign with two steps of the test's own; the second one waits for a file.
PROGRAM = """
import sys
from benchmarks.gpu_campaign import steps as gpu_campaign

folder = sys.argv.pop(1)
steps = [gpu_campaign.Step(name, 3600.0, (f"{folder}/test_{name}.py",)) for name in ("one", "two")]
gpu_campaign.STEPS = tuple(steps)
sys.exit(gpu_campaign.main())
"""
TWO = """
import time
from pathlib import Path

def test_two():
    Path({begun!r}).touch()
    while not Path({go!r}).exists():
        time.sleep(0.01)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    begun, go = str(tmp_path / "begun"), str(tmp_path / "go")
    (tmp_path / "test_two.py").write_text(TWO.format(begun=begun, go=go))
    return tmp_path


def begin(folder, *more, out="out", minutes=600):
    options = ["--work", folder / "work", "--out", folder / out, "--minutes", minutes]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, (folder, *options, *more))],
        cwd=gpu_campaign.ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def results(folder, out="out"):
    file = folder / out / gpu_campaign.RESULTS
    return json.loads(file.read_text())["steps"] if file.exists() else {}


def test_killed_in_the_second_step_it_goes_on_with_it_and_keeps_the_first(folder):
    process = begin(folder)
    until((folder / "begun").exists, "the second step begins")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    first = results(folder)
    assert list(first) == ["one"]
    assert (first["one"]["outcome"], first["one"]["tests"]) == ("ok", {"passed": 1})
    (folder / "go").touch()
    # As on a machine whose folder for results is empty at each call.
    again = begin(folder, "--resume", out="second")
    said, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0
    assert "one:" not in said
    both = results(folder, "second")
    assert both["one"] == first["one"]
    assert both["two"]["outcome"] == "ok"
    here = sorted(file.name for file in (folder / "second").iterdir())
    assert here == [gpu_campaign.RESULTS, gpu_campaign.LOG]


def test_it_begins_nothing_that_may_not_end_within_its_minutes(folder):
    process = begin(folder, minutes=9)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == gpu_campaign.UNFINISHED
    assert "left for the next call, with --resume: one, two" in said
    assert results(folder) == {}


def test_a_step_that_does_not_end_is_cut_off_and_the_next_one_runs(folder, monkeypatch):
    step = gpu_campaign.Step("two", 0.2, (str(folder / "test_two.py"),))
    monkeypatch.setattr(gpu_campaign, "STEPS", (step, step._replace(name="next")))
    arguments = ["--out", str(folder / "out"), "--work", str(folder / "work")]
    monkeypatch.setattr(sys, "argv", ["gpu_campaign", *arguments])
    assert gpu_campaign.main() == 0
    assert [step["outcome"] for step in results(folder).values()] == ["cut off at its limit"] * 2


def test_every_step_fits_into_a_call_and_is_a_part_or_tests_that_are_here():
    assert max(step.limit for step in gpu_campaign.STEPS) <= 9 * 60 - 30
    for step in gpu_campaign.STEPS:
        if step.is_part:
            assert step.name in gpu.PARTS
        for file in step.arguments:
            assert not file.startswith("tests/") or (gpu_campaign.ROOT / file).is_file()
    assert set(gpu.PARTS) == {step.name for step in gpu_campaign.STEPS if step.is_part}


@pytest.mark.slow
@pytest.mark.parametrize("part", ["switches", "determinism"])
def test_parts_are_rehearsed_on_a_cpu(part):
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        assert gpu.PARTS[part](torch.device("cpu"), True)
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
