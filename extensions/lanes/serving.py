"""The trainer's end of lanes: trials in one trainer take turns, each in its own thread.

A lane is a trainer process with one thread for each seat; the main thread is one of them. Each
thread takes a piece of work from the pipe, enters the turns (``turns``), and works when it has its
turn. So each thread does the same as a trainer alone, and only one thread runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import NoReturn

from ...tasks.process.lifeline import ending_with_us
from ...tasks.process.pipe import ReleaseTrial, Run, Work
from ...wire.messages import SegmentTask
from .name import NAME
from .turn_page import TurnPage
from .turns import Turn, Turns

#: Knobs that are settings of the whole process, or of the machine.
PROCESS_KNOBS = frozenset({"threads", "affinity"})


def serve(
    told: str,
    first: Work,
    inbox: SimpleQueue[Work],
    handle: Callable[[Work], None],
    resumed: Callable[[Run], None],
) -> NoReturn:
    """Serve in a thread for each seat; see ``hooks.Serve``.

    ``told`` has the number of seats and the file of the turn page (``TurnPage.told``).
    """
    from ...tasks.training.loop import device_here  # loads torch
    from .host_state import Generators

    seats, _, path = told.partition(":")
    turns = Turns(Generators(device_here()), TurnPage(Path(path), int(seats)))
    each = Seat(turns, inbox, handle, resumed)
    for i in range(1, int(seats)):
        Thread(target=each.serve, name=f"seat {i}", daemon=True).start()
    each.serve(first)


class Seat:
    """A thread of this process, and the work that the thread does."""

    def __init__(
        self,
        turns: Turns,
        inbox: SimpleQueue[Work],
        handle: Callable[[Work], None],
        resumed: Callable[[Run], None],
    ) -> None:
        self._turns = turns
        self._inbox = inbox
        self._handle = handle
        self._resumed = resumed

    def serve(self, work: Work | None = None) -> NoReturn:
        """Do ``work``, and then the work in the inbox, for ever."""
        with ending_with_us():
            while True:
                self._take(work or self._inbox.get())
                work = None

    def _take(self, work: Work) -> None:
        turn = self._enter(work)
        try:
            self._handle(work)
        finally:
            self._turns.leave(turn)

    def _enter(self, work: Work) -> Turn:
        if isinstance(work, ReleaseTrial):
            self._turns.forget(work.trial)
            return self._turns.enter("", 0, lambda: None)
        task = work.task
        own = task.ext.get(NAME, {})
        resumed = partial(self._resumed, work)
        turn = self._turns.enter(task.trial, task.fence, resumed, own.get("weights", {}))
        turn.alone = own.get("undivided", False) or _needs_process(task)
        work.turn = turn
        return turn


def _needs_process(task: SegmentTask) -> bool:
    """Return True if a segment changes the whole process, and so must be alone in the process."""
    own = any(name in PROCESS_KNOBS for name, _ in task.system)
    return bool(task.widths or own or task.memory_limit is not None or len(task.queues) > 1)
