"""A running Penstock in a state folder of its own, driven as a user drives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import PATIENCE, until
from penstock import BackendError, load_study
from penstock.app.host import locks
from penstock.app.host.settings import load
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import StudyRow
from penstock.app.server.services import services
from penstock.scheduler.model.events import EpochReported
from penstock.scheduler.model.study import number_of
from penstock.tasks.trainer.variables import ENVIRONMENT, IDENTITY

CORES = len(os.sched_getaffinity(0))
#: Two slots on any machine: on two devices where there are two cores, else on one.
TWO_SLOTS = "cpu:2x1" if CORES > 1 else "cpu:1x1*2"


class Installation:
    """Services start with the first study; ``close`` takes them down."""

    def __init__(self, home: Path, *, inside: Sequence[str] = (), **settings) -> None:
        """``inside`` is put before each command: how to enter the namespaces that it runs in."""
        self.inside = inside
        quick = {
            "devices": TWO_SLOTS,
            "lease_ms": 1500,
            "claim_timeout": 3.0,
            "idle_stop": 600.0,
            "preload": "nothing",
        }
        self.settings = load(home=home, **quick | settings)
        self.reader = Reader(self.settings.ledger_url)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of a user's shell, with a terminal so wide that no line wraps."""
        return {**os.environ, **self.settings.environment(), "COLUMNS": "400"}

    def start(self, *arguments, **options) -> subprocess.Popen[str]:
        """Start ``penstock ARGUMENTS`` as a process of its own."""
        return self.python("-m", "penstock", *arguments, **options)

    def python(self, *arguments, **options) -> subprocess.Popen[str]:
        """Start Python on ``arguments``; its output is piped unless told otherwise."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # Without -P the folder of these tests would be the first on the path of -m.
        command = [*self.inside, sys.executable, "-P", *map(str, arguments)]
        return subprocess.Popen(command, **{"env": self.environment} | pipes | options)

    def penstock(self, *arguments, status: int = 0, **options) -> str:
        """Return the output of ``penstock ARGUMENTS``; the error output if ``status`` is not 0."""
        return self.finish(self.start(*arguments, **options), status)

    @staticmethod
    def finish(process: subprocess.Popen[str], status: int = 0) -> str:
        """Wait for a process that ``start`` or ``python`` started."""
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"not over in {PATIENCE:g} s:\n{out}\n{err}") from None
        assert process.returncode == status, f"exit status {process.returncode}:\n{out}\n{err}"
        return err if status else out

    def facts(self, study: str) -> dict:
        """Return the facts that ``penstock status --json`` prints of a study."""
        return json.loads(self.penstock("status", study, "--json"))

    def wait(self, study: str):
        """The row of a study that is over."""
        return self.until(
            lambda: (row := self.reader.study(study)).finished_at and row, f"{study} ends"
        )

    def until(self, holds, what: str = "it"):
        """Wait until ``holds`` returns a true value; return it."""
        return until(holds, what, self.logs)

    def cancel_all(self) -> None:
        """Cancel what a test left running, so that it has no device of the next one."""
        with variables_of(self):
            for row in self._unfinished():
                load_study(row.id).cancel()
        self.until(lambda: not self._unfinished(), "the cancelled studies end")

    def _unfinished(self) -> list[StudyRow]:
        try:
            return [row for row in self.reader.studies() if row.finished_at is None]
        except BackendError:  # no ledger yet
            return []

    def logs(self) -> str:
        """The ends of all logs, for the message of a failed test."""
        ends = (
            (log.name, log.read_text(errors="replace")[-1500:])
            for log in sorted(self.settings.logs.iterdir())
        )
        return "\n".join(f"== {name}\n{end}" for name, end in ends)

    def log(self, name: str) -> str:
        """One service's log; of several workers or trainers, all that begin with ``name``."""
        return "".join(log.read_text() for log in sorted(self.settings.logs.glob(f"{name}*.log")))

    def trainers(self) -> list[psutil.Process]:
        """The trainer processes."""
        launcher = psutil.Process(locks.pid_of(self.settings.run, "launcher"))
        return [p for p in launcher.children() if is_trainer(p)]

    def trainers_in(self, environment: str) -> list[psutil.Process]:
        """The trainers of this environment, also below a program that has started them."""
        launcher = psutil.Process(locks.pid_of(self.settings.run, "launcher"))
        below = [p for p in launcher.children(recursive=True) if is_trainer(p) and not p.children()]
        return [p for p in below if p.environ().get(ENVIRONMENT) == environment]

    def close(self) -> None:
        services.take_down(self.settings, grace=2.0)
        for process in locks._started:
            if f"{self.settings.run}/" in " ".join(map(str, process.args)):
                process.wait(PATIENCE)


def is_trainer(process: psutil.Process) -> bool:
    try:
        return "penstock.tasks.trainer" in process.cmdline()
    except psutil.NoSuchProcess:  # or a zombie: it has just ended
        return False


def is_forked(pid: int) -> bool:
    """Return whether the process is a forked trainer, whose peers cannot read its ``/proc``."""
    return IDENTITY not in psutil.Process(pid).environ()


@contextmanager
def variables_of(site: Installation) -> Iterator[None]:
    """This process's environment is as in the shell of ``site``'s user: the API reads it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in site.settings.environment().items():
            patch.setenv(name, value)
        yield


@contextmanager
def up(home: Path, devices: str, count: int) -> Iterator[Installation]:
    """Yield an installation of this process's environment that serves ``count`` devices."""
    site = Installation(home, devices=devices)
    with variables_of(site):
        site.penstock("up")
        site.until(lambda: serving(site) and len(site.reader.devices()) == count, "devices join")
        yield site
    site.close()


@contextmanager
def working(site: Installation, *before: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """``penstock worker`` on a node, with what it says in a file; it is gone afterwards."""
    log = site.settings.home.with_suffix(".log")
    with log.open("w") as output:
        command = [*site.inside, *before, sys.executable, "-P", "-m", "penstock", "worker"]
        process = subprocess.Popen(command, env=site.environment, stdout=output, stderr=output)
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def serving(site: Installation) -> set[str]:
    """The nodes that have joined."""
    try:
        known = site.reader.devices()
    except BackendError:  # no ledger yet
        return set()
    return {found.device.node for found in known if found.state == "joined"}


def reports(site: Installation, study: Any) -> list[EpochReported]:
    """The reports of the study's epochs."""
    return [event for _, event in site.reader.of_trials(study.id, EpochReported)]


def outcome(site: Installation, study: Any) -> dict[tuple[int, int], tuple[str, Any]]:
    """State hash and metrics by trial and epoch."""
    rows = site.reader.epochs(study.id)
    return {(number_of(row.trial), row.epoch): (row.state_hash, row.metrics) for row in rows}


def so_far(site: Installation, study: Any) -> tuple[int, dict[tuple[int, int], tuple[str, Any]]]:
    """Cancel a study without an end; return its last epoch, and its outcome."""
    study.cancel()
    site.wait(study.id)
    found = outcome(site, study)
    return max(epoch for _, epoch in found), found
