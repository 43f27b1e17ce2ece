"""The seats of a lane: several trials in one trainer, each in a thread, that take turns.

A lane is a trainer process with as many threads as it has seats, of which the main thread is one.
Each takes what the pipe brings, enters the turns (``tasks.lanes.turns``), and works when it has its
turn. So whatever a trainer does alone is done here unchanged, by one thread at a time.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Thread

from ..lanes.turn_page import TurnPage
from ..lanes.turns import Turn, Turns
from ..process.pipe import ReleaseTrial, Run

Work = Run | ReleaseTrial


class Seats:
    """The seats of this process, and what is done in them."""

    def __init__(
        self,
        inbox: SimpleQueue[Work],
        handle: Callable[[Work], None],
        resumed: Callable[[Run], None],
    ) -> None:
        """``handle`` does the work, ``resumed`` what a run needs whose turn begins again."""
        self._inbox = inbox
        self._handle = handle
        self._resumed = resumed

    def serve(self, first: Work, seats: int, page: TurnPage) -> None:
        """Serve with so many seats, ``first`` before all else. Never returns."""
        from ..lanes.host_state import Generators  # loads torch
        from ..training.loop import device_here

        turns = Turns(Generators(device_here()), page)
        for i in range(1, seats):
            Thread(target=self._serve, args=(turns,), name=f"seat {i}", daemon=True).start()
        self._serve(turns, first)

    def _serve(self, turns: Turns, work: Work | None = None) -> None:
        with ending_with_us():
            while True:
                self._take(turns, work or self._inbox.get())
                work = None

    def _take(self, turns: Turns, work: Work) -> None:
        turn = self._enter(turns, work)
        try:
            self._handle(work)
        finally:
            turns.leave(turn)

    def _enter(self, turns: Turns, work: Work) -> Turn:
        if isinstance(work, ReleaseTrial):
            turns.forget(work.trial)
            return turns.enter("", 0, lambda: None)
        task = work.task
        turn = turns.enter(task.trial, task.fence, partial(self._resumed, work), dict(task.weights))
        turn.alone = task.undivided
        work.turn = turn
        return turn


@contextmanager
def ending_with_us() -> Iterator[None]:
    """An error of ours ends the process at once; the user's threads could keep it alive."""
    try:
        yield
    except BaseException:
        traceback.print_exc()
        os._exit(1)
