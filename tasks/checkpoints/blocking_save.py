"""Save a state that its epoch cannot count without: training waits for the checkpoint store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..process.failure import Lost
from ..process.pipe import Run
from .checkpoint import Store, reason

#: The shortest and the longest pause (seconds) between two attempts.
PAUSE, LONGEST_PAUSE = 0.5, 10.0


def save(run: Run, store: Callable[[], Store], state: dict[str, Any], epoch: int) -> str:
    """Save ``state`` (after ``epoch``) and return its URI, retrying until it is durable.

    Waiting does not count against an epoch's time limit. Raises ``Abandoned`` when the segment is
    fenced off meanwhile, and ``Lost`` when the segment is to end.
    """
    pause = PAUSE
    while True:
        try:
            return store().save(state, epoch)
        except Exception as error:  # the store is down or full; every store has its own errors
            why = reason(error)
        run.pipe.say("undurable", trial=run.task.trial, reason=why)
        if run.cut:
            raise Lost(f"the state after epoch {epoch}: {why}")
        run.wait(f"epoch {epoch} waits for the checkpoint store: {why}", pause)
        pause = min(LONGEST_PAUSE, 2 * pause)
