"""Of the tasks for ends of studies none is lost while scheduler, broker and worker are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.extension("celery_apps")]

ROOT = Path(__file__).parent.parent.parent


def test_no_task_is_lost_or_comes_under_another_id_while_all_are_killed(tmp_path):
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.celery_users", "--quick", "--parts", "on_end"]
    ran = subprocess.run(
        [*command, "--json", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    counted = json.loads(file.read_text())["on_end"]
    assert counted["kills"] == 3
    assert (counted["lost"], counted["other_ids"]) == (0, 0)
