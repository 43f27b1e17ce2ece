"""The tutorial does what it says: its script, then its commands in their order, kills and all."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE
from penstock.app.host.settings import Settings

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
TRIALS, MORE = 6, 10


@pytest.fixture
def shell(tmp_path):
    """A terminal of somebody who has installed Penstock: its folder is empty, its state new."""
    bin_folder = Path(sys.executable).parent
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PENSTOCK_", "XDG_STATE_HOME"))
    }
    environment |= {
        "HOME": str(tmp_path),
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_DEVICES": "cpu:2x1" if len(os.sched_getaffinity(0)) > 1 else "cpu:1x1*2",
    }

    def start(line):
        return subprocess.Popen(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    yield start
    start("penstock down").communicate(timeout=PATIENCE)


def commands():
    """Those after the installation, in their order."""
    _, _, page = PAGE.partition("\n## Run it\n")
    return re.findall(r"^    (\S.*)$", page, re.MULTILINE)


def test_services_stay_idle_for_as_long_as_the_tutorial_says():
    assert "nothing to do for a minute ([`PENSTOCK_IDLE_STOP`]" in PAGE
    assert Settings.model_fields["idle_stop"].default == 60.0


@pytest.mark.extension("report")
def test_the_tutorial_ends_as_it_says(shell, tmp_path):
    (script,) = re.findall(r"^```python run\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert "n_trials=60" in script
    (tmp_path / "train.py").write_text(script.replace("n_trials=60", f"n_trials={TRIALS}"))
    said, watching = {}, None
    assert "penstock extend asha --by 120" in commands()
    for line in (command.replace("--by 120", f"--by {MORE}") for command in commands()):
        process = shell(line)
        if line == "penstock watch full" and watching is None:
            watching = process  # in a terminal of its own
            continue
        said[line], _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, f"{line}\n{said[line]}"
    seen, _ = watching.communicate(timeout=PATIENCE)
    assert watching.returncode == 0, seen
    assert "asha" in said["penstock ls"]
    assert "took" in said["penstock ls"]
    assert {"loss", "train_loss"} <= {*said["penstock best asha"].split()}
    assert "trial 0" in said["penstock story asha/0"]
    assert "(fence " in said["penstock story asha/0"]
    submitted, cut_short = said["penstock submit train.py full"].splitlines()
    assert submitted == "submitted full: penstock watch full"
    assert " asks for results, which a study that was only submitted has later: " in cut_short
    with (tmp_path / "epochs.csv").open() as file:
        rows = [(row["number"], row["epoch"]) for row in csv.DictReader(file)]
    assert len(rows) == len(set(rows)) == TRIALS * 27
    page = Path(said["penstock report asha full"].strip()).read_text()
    assert "asha" in page
    assert "full" in page
    assert f"{TRIALS + MORE} trials" in said[f"penstock extend asha --by {MORE}"]
