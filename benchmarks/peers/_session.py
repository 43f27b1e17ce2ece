"""Runs of a system's own script: the studies of a plan, one after another, and its figures.

    python benchmarks/peers/<system>.py PLAN OUT

The plan is JSON: ``jobs`` (``tuner``, ``lrs``, ``epochs``, ``steps``) and ``launched``, when the
script was started. Its first job is not timed: that it began is the end of the start-up.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from _training import noted, result

ETA = 3
CORES = 2
#: Trains the job's trials; each process notes its epochs in the folder.
Study = Callable[[dict[str, Any], Path], None]


def pss_mb(pids: list[int]) -> float:
    """Memory of these processes and their descendants, shared pages divided among users (MB)."""
    every = {p.pid: p for pid in pids for p in psutil.Process(pid).children(recursive=True)}
    every |= {pid: psutil.Process(pid) for pid in pids}
    return sum(process.memory_full_info().pss for process in every.values()) / 1e6


def session(study: Study, pids: Callable[[], list[int]], home: Path) -> None:
    """Run the plan that the command line names. ``pids``: of the system once it is idle."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    figures: dict[str, Any] = {"jobs": []}
    for number, job in enumerate(plan["jobs"]):
        log = Path(tempfile.mkdtemp(dir=home))
        began = time.time()
        study(job, log)
        wall, epochs = time.time() - began, noted(log)
        if number == 0:
            figures["startup_s"] = epochs[0][0] - plan["launched"]
            time.sleep(2.0)  # what was to end has ended
            figures["idle_mb"] = pss_mb(pids())
        figures["jobs"].append(result(wall, epochs))
    Path(sys.argv[2]).write_text(json.dumps(figures))
