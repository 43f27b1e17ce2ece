"""Trainer processes: the children of a worker in which training runs.

A trainer speaks newline-delimited JSON over a socket pair; its output goes to a log file. Each slot
has one for all torch trials, and one for each of the last few studies of objectives and epoch
functions (they are paused in the middle of the user's code, so that code must stay as it is):
trials share them and stay warm in them. A trainer is bound to its device before it is started: no
library has been loaded by then. Other trainers reach it at its *identity*, ``address:port:token``:
the worker makes the socket, so that the identity is known before the process is up.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..profiling.devices import Device
from ..tasks.identity import Identity, listen
from ..tasks.messages import SegmentTask, dumps

log = logging.getLogger(__name__)

FD_VARIABLE = "PENSTOCK_TRAINER_FD"
LISTEN_VARIABLE = "PENSTOCK_TRAINER_LISTEN"
IDENTITY_VARIABLE = "PENSTOCK_TRAINER_IDENTITY"
#: Where powercap zones are; not there where the device's energy is not measured.
POWERCAP_VARIABLE = "PENSTOCK_TRAINER_POWERCAP"
COMMAND = (sys.executable, "-P", "-m", "penstock.tasks.trainer")
#: Contracts whose trials are paused in the middle of the user's code.
STAND_STILL = ("objective", "epochs")
#: Studies of functions that keep a trainer in a slot; the least recently used one is closed.
STUDIES_KEPT = 4
#: Seconds after which a trainer that has done nothing yet no longer counts as starting.
STARTING = 60.0
#: Seconds that a study's trainer stays idle when none of its trials will run again. The study's
#: next trial may be on its way.
LINGER = 5.0
#: The trainer that no study has for itself goes by this name.
SHARED = ""
#: How a trainer's C library (glibc; others do not read it) gets memory: large blocks too from the
#: heap, which keeps what is freed for the next step, in huge pages. Else a tensor of more than
#: 32 MiB is made of fresh pages each time: 140 MB of state trained 30 % slower.
ALLOCATOR = ":".join(
    (
        "glibc.malloc.mmap_threshold=1099511627776",
        "glibc.malloc.trim_threshold=1099511627776",
        "glibc.malloc.hugetlb=1",
    )
)


class TrainerGone(Exception):
    """The trainer's process has ended, or speaks what is no message; the text says how."""


def environment(device: Device) -> dict[str, str]:
    """The variables that bind a process to one slot of ``device``, over its user's."""
    threads = str(max(1, len(device.cores) // device.slots))
    return {
        "GLIBC_TUNABLES": ALLOCATOR,
        **os.environ,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": device.uuid or "",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
    }


class Trainer:
    """One trainer process. One thread at a time reads (``reading``), any thread may send."""

    def __init__(
        self, device: Device, output: Path, address: str, powercap: Path | None = None
    ) -> None:
        """It measures its energy with the meters in ``powercap``; not at all where that is None."""
        ours, theirs = socket.socketpair()
        with theirs, listen(address) as listening, output.open("ab") as file:
            port = listening.getsockname()[1]
            self.identity = str(Identity(address, port, token_hex(8)))
            variables = {
                FD_VARIABLE: str(theirs.fileno()),
                LISTEN_VARIABLE: str(listening.fileno()),
                IDENTITY_VARIABLE: self.identity,
            }
            if powercap is not None:
                variables[POWERCAP_VARIABLE] = str(powercap)
            self._process = subprocess.Popen(
                COMMAND,
                env={**environment(device), **variables},
                pass_fds=(theirs.fileno(), listening.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        if device.cores:
            _bind(self._process.pid, device.cores)
        self.reading = threading.Lock()
        self.ready = False
        self._began = time.monotonic()
        self._worked = False
        #: Trials that it keeps, and the decision behind each one's last segment.
        self.causes: dict[str, str] = {}
        #: When its last segment ended (monotonic).
        self.idle_since = time.monotonic()
        self._socket = ours
        self._sending = threading.Lock()
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self._lines: deque[bytes] = deque()
        self._rest = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; a trainer that is gone is noticed by who reads."""
        self.send_text(dumps(message))

    def send_text(self, text: str) -> None:
        with self._sending:
            try:
                self._socket.sendall(f"{text}\n".encode())
            except OSError as error:
                log.debug("trainer %d does not listen: %s", self.pid, error)

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next message, or None after ``timeout`` seconds without one. Raises TrainerGone."""
        while not self._lines:
            if not self._poll.poll(max(0.0, timeout * 1000)):
                return None
            try:
                data = self._socket.recv(1 << 16)
            except OSError as error:
                raise TrainerGone(f"{self.last_words()}: {error}") from error
            if not data:
                raise TrainerGone(self.last_words())
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines.extend(lines)
        line = self._lines.popleft()
        try:
            message = json.loads(line)
        except ValueError as error:
            raise TrainerGone(f"it said what is no message: {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise TrainerGone(f"it said what is no message: {line[:80]!r}")
        if message.get("op") == "ready":
            self.ready = True
        elif message.get("op") != "preparing":
            self._worked = True
        return message

    @property
    def starting(self) -> bool:
        """Whether it is new and imports what its first work needs."""
        return not self._worked and time.monotonic() - self._began < STARTING

    def last_words(self) -> str:
        """How the process ended: ``signal 11 (SIGSEGV)`` or ``exit code 3``."""
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return "it closed its pipe"
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"signal {-code} ({signal.Signals(-code).name})"
        except ValueError:  # a real-time signal has no name
            return f"signal {-code}"

    def kill(self) -> None:
        """End the process at once, stopped or not."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process and give back what it held here."""
        self.kill()
        self._socket.close()


class Slot:
    """The trainers of one slot. One segment runs at a time, under ``lock``."""

    def __init__(
        self,
        device: Device,
        index: int,
        logs: Path,
        address: str,
        powercap: Path | None = None,
    ) -> None:
        """``address`` is where this node's trainers listen to those of other slots and nodes.

        ``powercap``: as of ``Trainer``.
        """
        self._powercap = powercap
        self.device = device
        self.address = address
        self.queue = device.queue(index)
        self.lock = threading.Lock()
        self.output = logs / f"trainer-{self.queue}.log"
        self._trainers: OrderedDict[str, Trainer] = OrderedDict()

    def warm(self, name: str = SHARED) -> Trainer:
        """The trainer of a study, or the shared one; a new one where it has ended or never was."""
        trainer = self._trainers.get(name)
        if trainer is None or not trainer.alive:
            trainer = Trainer(self.device, self.output, self.address, self._powercap)
            self._trainers[name] = trainer
        self._trainers.move_to_end(name)
        return trainer

    def trainer_for(self, task: SegmentTask) -> Trainer:
        """The trainer that runs ``task``."""
        return self.warm(task.study if task.contract in STAND_STILL else SHARED)

    def unneeded(self) -> list[Trainer]:
        """Take out the trainers of studies that are over or surplus; the caller closes them."""
        studies = [name for name in self._trainers if name != SHARED]
        names = {name for name in studies if _is_over(self._trainers[name])}
        names.update(studies[:-STUDIES_KEPT])
        return [self._trainers.pop(name) for name in names]

    def release(self, trial: str) -> None:
        """The trial is over: whoever keeps it may drop it."""
        for trainer in self.trainers():
            if trainer.causes.pop(trial, None) is not None:
                trainer.send({"op": "release", "trial": trial})

    def is_shared(self, trainer: Trainer) -> bool:
        return self._trainers.get(SHARED) is trainer

    def take_out(self, trainer: Trainer) -> None:
        """Forget a trainer that is gone."""
        for name, known in list(self._trainers.items()):
            if known is trainer:
                del self._trainers[name]

    def trainers(self) -> list[Trainer]:
        return list(self._trainers.values())


def _is_over(trainer: Trainer) -> bool:
    return not trainer.causes and time.monotonic() - trainer.idle_since > LINGER


def _bind(pid: int, cores: tuple[int, ...]) -> None:
    try:
        os.sched_setaffinity(pid, cores)
    except OSError as error:  # cores that a container does not have, or a child gone already
        log.warning("trainer %d is not bound to cores %s: %s", pid, cores, error)
