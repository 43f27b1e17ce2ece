"""Estimates the memory of trials in child processes, in a small part of the trainer's time.

Theory of operation. A trace (``trace``) runs the user's code on fake tensors, and the code may keep
some of them. So each trace runs in a forked child. The child has the data that the trainer has
loaded, and the trial's state is safe from anything that happens in the child. A child that hangs is
killed.

Estimates and measurements together take at most about ``SHARE`` of the trainer's training time, and
measurements at most half of that. Each is assumed to take as long as the last one of its kind.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ....base.footprint import Footprint
from ....tasks.process.failure import failure_of
from ....tasks.training.training import Training
from .trace import trace

#: The most time for estimates and measurements, as a share of a trainer's training time.
SHARE = 0.01
#: Assumed seconds of the first estimate and of the first measurement.
ESTIMATE, MEASUREMENT = 0.25, 0.1
#: The file to write to, and the value, so that the kernel kills a process first if memory is short
#: (Linux, proc(5)).
_SCORE, _FIRST = Path("/proc/self/oom_score_adj"), "1000"
_PR_SET_PDEATHSIG = 1
#: Seconds after which a child is killed.
TIMEOUT = 60.0
#: The reason for no estimate in a process that has used a GPU. PyTorch computes no gradients in a
#: child of such a process; on an H200 the child hung until it was killed.
USES_GPU = "a process that has used a GPU cannot be forked"


class Estimator:
    """Makes the estimates of one trainer, and keeps an account of their time."""

    def __init__(self) -> None:
        self._trained = self._spent = self._measuring = 0.0
        self._estimate_cost, self._measurement_cost = ESTIMATE, MEASUREMENT

    def trained(self, seconds: float) -> None:
        """Add ``seconds`` of training to the account."""
        self._trained += seconds

    def affords_measurement(self) -> bool:
        """Return True if the account has time for measuring the next epoch."""
        allowed, cost = SHARE * self._trained, self._measurement_cost
        return self._spent + cost <= allowed and self._measuring + cost <= allowed / 2

    def measured(self, seconds: float) -> None:
        """Add a measurement that took ``seconds`` to the account."""
        self._measurement_cost = seconds
        self._spent += seconds
        self._measuring += seconds

    def affords_estimate(self) -> bool:
        """Return True if the account has time for another estimate."""
        return self._spent + self._estimate_cost <= SHARE * self._trained

    def estimate(
        self, make: Callable[[], Training], examples: Mapping[int, Any] | None = None
    ) -> dict[str, Any]:
        """Return the footprint of the trial that ``make`` makes, in the form of ``footprint_body``.

        Its ``failed`` is the reason if the trial could not be traced. ``examples`` has the first
        example of each data set that is loaded already, by the ``id`` of the set. The child must
        not read these sets: a file opened by both processes has one position, and a connection has
        one stream.
        """
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return _failed(USES_GPU)
        began = time.monotonic()
        try:
            return in_child(lambda: _traced(make, examples), TIMEOUT)
        finally:
            self._estimate_cost = time.monotonic() - began
            self._spent += self._estimate_cost


def footprint_body(
    found: Footprint, *, measured: bool = False, recurrent: bool = False
) -> dict[str, Any]:
    """Return the fields of a report of ``found``: its bytes, and the way they were found."""
    return asdict(found) | {"measured": measured, "recurrent": recurrent, "failed": ""}


def _traced(make: Callable[[], Training], examples: Mapping[int, Any] | None) -> dict[str, Any]:
    torch.set_num_threads(1)  # the parent's threads are not here
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            footprint, recurrent = trace(make(), examples)
    except Exception as error:  # whatever torch or the user's code raises
        return _failed(str(failure_of(error)).partition("\n")[0])
    return footprint_body(footprint, recurrent=recurrent)


def _failed(why: str) -> dict[str, Any]:
    return footprint_body(Footprint(0, 0, 0)) | {"failed": why[:300] or "it said nothing"}


def in_child(work: Callable[[], dict[str, Any]], timeout: float) -> dict[str, Any]:
    """Run ``work`` in a forked child for up to ``timeout`` seconds; return its result or error."""
    receiving, sending = os.pipe()
    parent = os.getpid()
    try:
        with warnings.catch_warnings():  # about threads, which the child does not need
            warnings.simplefilter("ignore")
            child = os.fork()
    except OSError as error:  # too many processes, or too little memory
        os.close(receiving)
        os.close(sending)
        return _failed(f"no process could be forked: {error}")
    if child == 0:
        status = 1
        try:
            os.close(receiving)
            silence = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):  # hide what the user's code prints about fake tensors
                os.dup2(silence, stream)
            with suppress(OSError):  # if memory is short, this process is killed first
                _SCORE.write_text(_FIRST)
            _end_with(parent)
            _write_all(sending, json.dumps(work()).encode() + b"\n")
            status = 0
        finally:
            os._exit(status)
    os.close(sending)
    try:
        text = _all_of(receiving, time.monotonic() + timeout)
    finally:
        os.close(receiving)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if text is None:
        return _failed(f"it took more than {timeout:g} s")
    try:
        body: dict[str, Any] = json.loads(text)
    except ValueError:
        return _failed(f"its process ended with status {os.waitstatus_to_exitcode(status)}")
    return body


def _end_with(parent: int) -> None:
    """Ask the kernel to kill this process when the process ``parent`` ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the kernel was asked
        os._exit(1)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _all_of(descriptor: int, deadline: float) -> bytes | None:
    """Return the bytes read from a pipe up to the end of a line, or up to the pipe's end.

    Returns None if that takes too long. Reading stops at the line's end because a process started
    by the child may keep the other end open.
    """
    content = b""
    while (remaining := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], remaining)[0]:
            break
        part = os.read(descriptor, 1 << 16)
        content += part
        if not part or part.endswith(b"\n"):
            return content
    return None
