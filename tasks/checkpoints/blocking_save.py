"""Save a state that must be durable before its epoch counts: training waits for the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base.backoff import Backoff
from ..process.failure import Lost
from ..process.pipe import Run
from .checkpoint import Store, reason

#: Pauses between attempts (seconds).
PAUSES = Backoff(first=0.5, longest=10.0)


def save(run: Run, store: Callable[[], Store], state: dict[str, Any], epoch: int) -> str:
    """Save ``state`` (after ``epoch``) and return its URI, retrying until it is durable.

    Waiting does not count against an epoch's time limit. Raises ``Abandoned`` if the segment is
    fenced off meanwhile, and ``Lost`` if the segment is to end.
    """
    failures = 0
    while True:
        try:
            return store().save(state, epoch)
        except Exception as error:  # the store is down or full; every store has its own errors
            why = reason(error)
        run.pipe.say("undurable", trial=run.task.trial, reason=why)
        if run.cut:
            raise Lost(f"the state after epoch {epoch}: {why}")
        failures += 1
        run.wait(f"epoch {epoch} waits for the checkpoint store: {why}", PAUSES.after(failures))
