"""Suspend and resume users' functions: each in a thread of its own, one running at a time.

Theory of operation. A function that owns its loop cannot be left after an epoch and entered again.
So it waits in the middle of its loop, at no cost but its memory. Its thread is the process's main
thread if that is free (``main_thread``). The turn passes between the function and the thread that
serves the worker, so exactly one of these threads runs. Trials of a study share the process, its
imports and its data, but never run at the same moment.

A function that is no longer needed is unwound: ``Abandoned`` is raised in it where it waits. No
``except Exception`` catches that, so the function's ``finally`` and ``with`` blocks run. Its
reports are kept: a segment that was fenced off may have reported more epochs than were accepted,
and these reports are sent again from memory.
"""

from __future__ import annotations

import os
import sys
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, NoReturn, TypeVar

from ...base.errors import TrialFailed
from ..process import forks
from ..process.main_thread import MAIN_THREAD, Wake, wait_until
from ..process.output import printing_for
from ..process.pipe import Abandoned, Run

#: Most functions that stay paused. If there are more, the one that has waited longest is unwound.
PAUSED_KEPT = 4
#: Seconds that an unwound function has for its ``finally`` blocks. After that the process ends,
#: since the function would run at the same time as the next trial.
UNWIND = 30.0


@dataclass(frozen=True, slots=True)
class Report:
    """A function's report of one epoch, with the URI of the state after it if that is durable."""

    metrics: dict[str, float]
    seconds: float
    state_hash: str = ""
    #: URI of the durable state; empty if there is none.
    uri: str = ""
    #: The energy of the epoch; None if not measured.
    joules: float | None = None


class Function(ABC):
    """One trial's function in this process, from its start to its end."""

    #: The digest of the draws under which the function reports; empty if it draws nothing.
    draws_digest: str = ""

    def __init__(self, kind: str, run: Run) -> None:
        self.reports: dict[int, Report] = {}
        self.done = False
        self._run = run
        self._name = f"{kind} {run.task.trial}"
        # True while it is the function's turn. A wake-up says only that this may have changed.
        self._mine = False
        self._turn: Wake = SimpleQueue()
        self._pause: Wake = SimpleQueue()
        self._released = self._begun = self._returned = False
        self._outcome: BaseException | None = None
        self._ended = threading.Event()
        if not MAIN_THREAD.take(self._body):
            threading.Thread(target=self._body, name=self._name, daemon=True).start()

    def advance(self, run: Run) -> None:
        """Run the function until the segment closes or the function ends (``done``).

        Raises the function's error, and ``Abandoned`` if the segment was fenced off.
        """
        self._run = run
        epoch = run.task.first
        while epoch in self.reports:
            if self.send(epoch):
                return
            epoch += 1
        self._pass()
        while self._mine:
            self._pause.get()
        if self._outcome is not None:
            try:
                raise self._outcome
            finally:
                self._forget()

    def unwind(self) -> None:
        """End the waiting function, since the trial will not continue from here."""
        self._released = True
        printing = printing_for(self._run.task.trial)
        self._pass()
        if not self._ended.wait(UNWIND):
            print(f"{self._name} has not ended in {UNWIND:g} s", file=sys.stderr, flush=True)  # noqa: T201
            os._exit(1)
        printing_for(printing)
        self._forget()

    def _forget(self) -> None:
        """Drop the outcome: its frames keep alive the function's memory, and the outcome itself."""
        self._outcome = None

    def _pass(self) -> None:
        """Pass the turn to the function."""
        self._mine = True
        self._turn.put(None)

    @property
    def run(self) -> Run:
        """The current segment, or the last one."""
        return self._run

    def send(self, epoch: int, *, closes: bool | None = None) -> bool:
        """Send the report of ``epoch``; return True if the segment closed (see ``Run.epoch``).

        A report that cannot be sent ends the attempt, which could not continue without this epoch.
        """
        report = self.reports[epoch]
        try:
            return self._run.epoch(
                epoch,
                report.metrics,
                seconds=report.seconds,
                state_hash=report.state_hash,
                uri=report.uri,
                joules=report.joules,
                closes=closes,
                values={"draws_digest": self.draws_digest} if self.draws_digest else {},
            )
        except TrialFailed as error:
            self.give_up(error)

    # The rest runs in the function's thread.

    @abstractmethod
    def call(self) -> None:
        """Run the user's function to its end."""

    def check(self) -> None:
        """Raise ``Abandoned`` if the trial must not continue here; in a forked child, end it."""
        forks.end_child()
        if self._released:
            raise Abandoned
        self._run.check()

    def wait(self) -> None:
        """Pass the turn to the serving thread until it comes back. Raises as ``check`` does."""
        self._mine = False
        self._pause.put(None)
        raised = wait_until(lambda: self._mine, self._turn)
        self.check()
        if raised is not None:
            raise raised

    def give_up(self, error: BaseException) -> NoReturn:
        """End the attempt with ``error``, whatever errors the user's code catches."""
        self._outcome = error
        raise Abandoned

    def _body(self) -> None:
        """Call the function once, and then pass the turn for good.

        This method is entered again if a user's signal handler has raised outside of the call.
        """
        try:
            if not self._begun:
                self._begun = True
                wait_until(lambda: self._mine, self._turn)
                self.call()
                self._returned = True
        except BaseException as error:  # sys.exit too; the serving thread raises it
            forks.end_child(error)
            self._outcome = self._outcome or error
        forks.end_child()
        if not self._returned and self._outcome is None:
            self._outcome = RuntimeError("a signal handler raised where the function ended")
        self.done = True
        MAIN_THREAD.give_back(self._body)
        self._mine = False
        self._ended.set()
        self._pause.put(None)


F = TypeVar("F", bound=Function)


class PausedFunctions(Generic[F]):
    """The suspended functions of one trainer, by trial."""

    def __init__(self) -> None:
        self._functions: OrderedDict[str, F] = OrderedDict()

    def take(self, trial: str) -> F | None:
        """Remove and return the trial's function; None if there is none."""
        return self._functions.pop(trial, None)

    def put(self, trial: str, function: F) -> None:
        """Keep a waiting function; if too many wait, unwind the one that has waited longest."""
        self._functions[trial] = function
        if len(self._functions) > PAUSED_KEPT:
            self._functions.popitem(last=False)[1].unwind()

    def release(self, trial: str) -> None:
        function = self.take(trial)
        if function is not None:
            function.unwind()
