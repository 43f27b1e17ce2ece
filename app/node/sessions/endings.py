"""Describe how a trainer's process ended, and whether a study's environment can run a trainer."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from ....tasks.process.lifeline import PIPE_CLOSED
from ...extensions import end_of
from .conversations import TrainerGone

VERSION = version("penstock")
#: The names of packages as messages show them.
_TITLES = {"penstock": "Penstock", "python": "Python"}
#: The text of Python's error if Penstock is not installed.
_NO_PENSTOCK = re.compile(r"No module named '?penstock")
#: The largest number of leftover processes that a message names.
_NAMED = 5


def ending(status: int, left: Sequence[str], error: str) -> TrainerGone:
    """Return the error for a trainer process that has ended.

    ``status`` is the exit status, or the negative number of the signal that ended the process. The
    status ``PIPE_CLOSED`` means that the process had lost its socket. ``left`` names the processes
    that the trainer had started and that were ended after it. ``error`` is the uncaught exception
    in the trainer's log, or empty.
    """
    code = None
    if status == PIPE_CLOSED:
        how = "the training code closed file descriptors that it had not opened"
    elif status < 0:
        how = _signal(status)
    else:
        how, code = f"exit code {status}", status
    if left:
        names = ", ".join(left[:_NAMED])
        how += f"; these processes that it had started were ended with it: {names}"
        how += f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return TrainerGone(how, code, error)


def unfit(environment: str, status: int, said: str) -> TrainerGone:
    """Return the error for a trainer that ended before it was ready, in a study's ``environment``.

    ``status`` is the exit status (negative for a signal), and ``said`` is the error in the
    trainer's log.
    """
    if _NO_PENSTOCK.search(said):
        return TrainerGone(f"{environment} has no Penstock: {_advice(environment)}", unfit=True)
    how = f"exit code {status}" if status >= 0 else _signal(status)
    words = f"{environment} cannot start a trainer ({how}){f': {said}' if said else ''}"
    return TrainerGone(words, unfit=True)


def versions_of(environment: str, ready: Mapping[str, Any]) -> str:
    """Return the versions in a study's environment as words, from its trainer's ``ready`` message.

    Raises TrainerGone if the environment has another version of Penstock than the worker.
    """
    has = {name: str(ready[name]) for name in ("penstock", "python", "torch") if name in ready}
    if has.get("penstock") != VERSION:
        own_version = f"Penstock {has['penstock']}" if has.get("penstock") else "another Penstock"
        words = f"{environment} has {own_version}, and its worker {VERSION}: {_advice(environment)}"
        raise TrainerGone(words, unfit=True)
    return ", ".join(f"{_TITLES.get(each, each)} {has[each]}" for each in has)


def _advice(environment: str) -> str:
    """Return advice on how to install the worker's version of Penstock in the environment."""
    launching = end_of("environments", "launching", f"environment = {environment}")
    return str(launching.advice(environment, f"penstock=={VERSION}"))


def _signal(status: int) -> str:
    """Return the number and the name of the signal in ``status``, as in ``signal 11 (SIGSEGV)``."""
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:  # a real-time signal has no name
        return f"signal {-status}"
