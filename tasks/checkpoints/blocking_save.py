"""Writing a state that an epoch cannot count without: what was trained waits for its store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..process.failure import Lost
from ..process.pipe import Run
from .checkpoint import Store, reason

#: The shortest and the longest time (seconds) between two tries.
PAUSE, LONGEST_PAUSE = 0.5, 10.0


def save(run: Run, store: Callable[[], Store], state: dict[str, Any], epoch: int) -> str:
    """The URI of ``state`` (after ``epoch``) once it is durable; tried until then.

    Waiting does not count against an epoch's time limit. Raises ``Abandoned`` when the segment is
    fenced off meanwhile, and ``Lost`` when it is to end.
    """
    pause = PAUSE
    while True:
        try:
            return store().save(state, epoch)
        except Exception as error:  # the store is down or full; each has errors of its own
            why = reason(error)
        run.pipe.say("undurable", trial=run.task.trial, reason=why)
        if run.cut:
            raise Lost(f"the state after epoch {epoch}: {why}")
        run.waits(f"epoch {epoch} waits for the checkpoint store: {why}", pause)
        pause = min(LONGEST_PAUSE, 2 * pause)
