"""A device of this machine and its worker process, which is started again whenever it ends.

A worker is forked where that is possible (``app.node.worker.forks``). Otherwise it is started as a
new program. The worker is bound to its device before its first instruction: to a GPU by the GPU's
UUID, to CPU cores by affinity.

A worker holds the lock of its device, so no device is ever served twice. The next agent waits for a
worker that is still leaving, and kills a worker that does not leave. A worker that ends is started
again at once, or after growing pauses if it keeps ending (``Restarts``).
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from ....base.backoff import Restarts
from ....base.hiding import hidden
from ....profiling.devices.device import Device
from ...host import locks, logs
from ...host.launcher import Adopted, bound_to
from ...host.settings import Settings
from ..launching.variables import worker_environment
from ..worker.celery import worker_argv
from ..worker.forks import WorkerForks

log = logging.getLogger(__name__)

#: Seconds within which a worker of an earlier agent must leave its device.
LEAVE_GRACE = 3.0
#: The number of early ends in a row after which a worker's trouble is reported, because two early
#: ends are no accident.
CRASH_LOOP_AFTER = 2


@dataclass(slots=True)
class ServedDevice:
    """A device and its worker. All times are in monotonic seconds."""

    device: Device
    settings: Settings
    #: The fork server of the device's workers. None if workers are started as new programs.
    forks: WorkerForks | None
    #: The worker's process. None while no worker runs.
    process: subprocess.Popen[bytes] | Adopted | None = None
    #: A descriptor that becomes readable when the worker ends. -1 while no worker runs.
    ended: int = -1
    #: The time at which to start the worker, if no worker runs.
    due: float = 0.0
    #: The record of the starts and ends of the device's workers.
    restarts: Restarts = field(default_factory=Restarts)
    #: The time since which a worker of an earlier agent holds the device. None if no such worker
    #: does.
    occupied_since: float | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the worker."""
        return worker_environment(self.settings, self.device, os.environ)

    @property
    def has_ended(self) -> bool:
        """True if the worker has ended and ``let_go`` was not called yet."""
        return self.process is not None and self.process.poll() is not None

    @property
    def keeps_ending(self) -> bool:
        """True if the device's workers have ended early too often for an accident."""
        return self.restarts.early >= CRASH_LOOP_AFTER

    def start(self, stdin: int, now: float) -> None:
        """Start the worker, or wait for an earlier agent's worker to leave. Raises OSError."""
        with bound_to(self.device.cores):
            process = self._fork(stdin) or self._start_program(stdin)
        if process is None:
            self._await_release(now)
            return
        self.process, self.occupied_since = process, None
        self.restarts = self.restarts.started(now)
        self.ended = os.pidfd_open(process.pid)

    def _fork(self, stdin: int) -> Adopted | None:
        """Fork the worker.

        Return None if it cannot be forked, or if another worker has the device.
        """
        with locks.to_pass_on(self.settings.run, self._lock) as lock:
            if lock is None or self.forks is None:
                return None
            with logs.open_log(self._log) as output:
                return self.forks.start(
                    worker_argv(self.device),
                    variables=self.environment,
                    cores=self.device.cores,
                    folder=self.settings.home,
                    descriptors=(lock, stdin, output.fileno()),
                )

    def _start_program(self, stdin: int) -> subprocess.Popen[bytes] | None:
        """Start the worker as a new program. Return None if another worker has the device."""
        return locks.spawn_service(
            self.settings.run,
            self._lock,
            worker_argv(self.device),
            env=self.environment,
            log=self._log,
            cwd=self.settings.home,
            stdin=stdin,
        )

    def let_go(self) -> None:
        """Forget the worker, which has ended."""
        os.close(self.ended)
        self.process, self.ended = None, -1

    def record_exit(self, now: float) -> str:
        """Record the worker's end and the time of its next start. Return how the worker ended."""
        assert self.process is not None
        self.restarts = self.restarts.ended(now)
        self.due = self.restarts.due
        status = self.process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        wait, name = self.due - now, self.device.name
        log.warning("the worker of %s ended (%s): starting it again in %g s", name, how, wait)
        self.let_go()
        return how

    def crash_words(self, how: str) -> str:
        """Return the message about a worker that keeps ending.

        The message contains the last error in the worker's log, or ``how`` if no cause is known.
        """
        why = logs.last_error(self._log) or hidden(ImportError(name="celery")) or how
        return (
            f"the worker of {self.device.name} exits as soon as it is started: {why}"
            f" (see {self._log})"
        )

    @property
    def _lock(self) -> str:
        return f"device-{self.device.name}"

    @property
    def _log(self) -> Path:
        return self.settings.logs / f"worker-{self.device.name}.log"

    def _await_release(self, now: float) -> None:
        """Set the time of the next attempt to start, because an earlier worker has the device.

        The earlier worker belongs to an earlier agent. It is killed if it does not leave within
        ``LEAVE_GRACE``.
        """
        self.occupied_since = since = self.occupied_since or now
        if now - since > LEAVE_GRACE:
            locks.send_signal(self.settings.run, self._lock, signal.SIGKILL)
        self.due = now + 0.02
