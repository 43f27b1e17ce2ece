"""CPU time of an empty task of one epoch, by process: runner, Celery worker, trainers."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import psutil


def cpu_seconds() -> Counter[str]:
    """User and system seconds so far: ours (the runner's), and by kind those of what we started."""
    used = Counter(runner=used_by(psutil.Process()))
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended since
            command = child.cmdline()
            # It waits, and is no part of ours; its module has another name in older commits.
            if not any(word.endswith("raw_celery") for word in command):
                kind = "trainers" if "penstock.tasks.trainer" in command else "worker"
                used[kind] += used_by(child)
    return used


def used_by(process: psutil.Process) -> float:
    """User and system seconds of one process so far."""
    times = process.cpu_times()
    return times.user + times.system


def cpu_ms(at: Any, slots: int, tasks: int) -> dict[str, float]:
    """Milliseconds of CPU time a task, in all and by process, of a warm plane's study."""
    before = cpu_seconds()
    at.study(slots, tasks // slots)
    used = cpu_seconds()
    used.subtract(before)
    by_kind = {f"cpu_ms_a_task.{kind}": 1e3 * seconds / tasks for kind, seconds in used.items()}
    return {"cpu_ms_a_task": sum(by_kind.values())} | by_kind
