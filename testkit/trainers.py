"""Finds the trainers of a node, and the processes that start them and its workers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
from penstock.app.host import locks
from penstock.app.node.worker import forks

LAUNCHER = "launcher"


def trainers(run: Path, device: str = "") -> list[psutil.Process]:
    """The trainers that run there, those of ``device`` alone if one is named.

    A trainer writes to the log of its slot.
    """
    found = []
    for process in _launched(run):
        with suppress(psutil.Error, OSError):
            log = Path(f"/proc/{process.pid}/fd/1").readlink().name
            if log.startswith(f"trainer-{device}.s" if device else "trainer-"):
                found.append(process)
    return found


def fork_servers(run: Path) -> list[psutil.Process]:
    """The processes that have imported what trainers need."""
    found = []
    for process in _launched(run):
        with suppress(psutil.Error):
            if "penstock.tasks.trainer.fork_server" in process.cmdline():
                found.append(process)
    return found


def worker_forks(run: Path) -> list[psutil.Process]:
    """The process that forks the workers, of an agent that is there and has one."""
    found = []
    for process in _children(run, "agent"):
        with suppress(psutil.Error):
            if process.cmdline() == [forks.NAME]:
                found.append(process)
    return found


def _launched(run: Path) -> list[psutil.Process]:
    return _children(run, LAUNCHER)


def _children(run: Path, service: str) -> list[psutil.Process]:
    pid = locks.pid_of(run, service)
    with suppress(psutil.NoSuchProcess):
        return [] if pid is None else psutil.Process(pid).children()
    return []
