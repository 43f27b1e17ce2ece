"""A step of Celery's workers that lets users' own workers serve the devices of their machines.

The step runs only in a worker's main process, never in the child processes of a pool, and has no
thread. A separate process, the keeper (``agent_keeper``), starts the node agent and starts the
agent again after an end. While another agent serves the machine, the keeper waits. The step starts
the keeper, logs the keeper's messages, and tells the keeper how to end.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from celery import bootsteps, signals

from ...app.host.celery_broker import broker_of_app
from ...app.host.settings import Settings, load
from ...base.backoff import Restarts
from ...base.errors import PenstockError

log = logging.getLogger(__name__)

#: Seconds between two readings of the keeper's messages.
LOOK_INTERVAL = 1.0
#: Seconds that a keeper may take to end its agent: 35 for draining, 5 more, and a reserve.
KEEPER_GRACE = 45.0
_LEVELS = {"info": logging.INFO, "error": logging.ERROR}
#: The environment variables that are set for the worker's own tasks.
_TOLD = ("PENSTOCK_BROKER", "PENSTOCK_DEVICES")


def install(app: Any, devices: str = "auto") -> None:
    """Let the workers of a Celery app serve the devices of their machines while the workers run.

    ``devices`` has the form of ``penstock worker --devices``; ``auto`` means the value of
    PENSTOCK_DEVICES, or all devices if that variable is not set. The broker is PENSTOCK_BROKER, or
    else the app's broker. Studies that the app's tasks start use the same broker.
    """
    app.steps["worker"].add(_step(devices))


def _step(devices: str) -> Any:
    class Devices(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery ships no types
        requires = ("celery.worker.components:Timer",)

        def create(self, parent: Any) -> ServedDevices:
            return ServedDevices(parent, devices)

    return Devices


class ServedDevices:
    """The step itself, which serves devices from the start of a Celery worker to its end."""

    def __init__(self, worker: Any, devices: str) -> None:
        self._worker = worker
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = Restarts()
        self._output = b""
        self._settings: Settings | None = None
        try:
            self._settings = _settings(worker.app, devices)
        except PenstockError as error:
            log.error("this worker serves no devices: %s", error)
        else:
            # Studies that the worker's tasks start use these devices. The pool forks later.
            variables = self._settings.environment()
            os.environ.update({name: variables[name] for name in _TOLD})

    def start(self) -> None:
        """Start to serve the devices.

        A failure is only logged, since the worker's own tasks must go on.
        """
        if self._settings is None:
            return
        self._look()
        self._worker.timer.call_repeatedly(LOOK_INTERVAL, self._look)
        # Running tasks may wait for studies, which need the devices: serve until the pool is empty.
        signals.worker_shutdown.connect(self._drain, sender=self._worker, weak=False)
        signals.worker_shutting_down.connect(self._shutting_down, weak=False)

    def stop(self) -> None:
        """Do nothing. The devices are served until the worker's pool is empty (see ``start``)."""

    def terminate(self) -> None:
        """Stop serving the devices at once, without waiting for trials."""
        self._end(signal.SIGINT)

    def _drain(self, **_: Any) -> None:
        if self._process is not None and self._process.poll() is None:
            log.info("trials on this worker's devices end their epoch, then it ends")
        self._end(signal.SIGTERM)

    def _shutting_down(self, how: str = "", **_: Any) -> None:
        """End the trials at once on a cold shutdown, even while the keeper waits for the trials."""
        if how == "Cold" and self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(KEEPER_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listen()
        self._process = None

    def _look(self) -> None:
        """Log the keeper's messages, and start the keeper if it is not running."""
        now = time.monotonic()
        if self._process is not None:
            self._listen()
            if (status := self._process.poll()) is None:
                return
            self._process = None
            self._restarts = self._restarts.ended(now)
            log.error("what keeps this worker's devices served ended (exit status %d)", status)
        if now >= self._restarts.due:
            self._restarts = self._restarts.started(now)
            try:
                self._process = self._start_keeper()
            except OSError as error:
                self._restarts = self._restarts.ended(now)
                log.error("what keeps this worker's devices served cannot be started: %s", error)

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        assert self._settings is not None
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.agent_keeper", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._settings.environment()},
            start_new_session=True,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._output = b""
        return process

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with suppress(BlockingIOError):
            while more := os.read(self._process.stdout.fileno(), 1 << 16):
                self._output += more
        *lines, self._output = self._output.split(b"\n")
        for line in lines:
            level, _, words = line.decode(errors="replace").partition("\t")
            log.log(_LEVELS[level], "%s", words)


def _settings(app: Any, devices: str) -> Settings:
    """Return the settings of the process that serves the devices.

    Raises UsageError if the settings, or the app's broker, cannot be used.
    """
    overrides = {} if devices == Settings.model_fields["devices"].default else {"devices": devices}
    settings = load(**overrides)
    if settings.broker is not None:
        return settings
    return load(**overrides, broker=broker_of_app(app, app.main or "of this worker"))
