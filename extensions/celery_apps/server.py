"""Carries out decisions of the engine to send users' tasks (``Call``)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...app.common.outbox import Key, Outbox, Outcome, key_of, try_in_process
from ...app.server.runner.decision_collector import Turn
from ...base.backoff import Backoff
from ...scheduler.model.events import Event
from . import send
from .events import Call, Called

if TYPE_CHECKING:
    from ...app.ledger.ledger import Ledger

log = logging.getLogger(__name__)

#: The pauses between two tries (seconds). A task is tried again until its broker can be reached.
PAUSES = Backoff(first=1.0, longest=60.0)


def attempt(call: Call) -> Outcome:
    """Try to send a task in a separate process, and wait until that process ends."""
    request = json.loads(call.call) | {
        "task_id": call.task_id,
        "study": dict(call.facts),
        "again": call.again,
        "scheduler": os.getpid(),
    }
    outcome = try_in_process(send.__name__, request, send.TIMEOUT, "its broker")
    if outcome.why and outcome.limit != 1:
        name = call.facts["name"]
        log.warning(
            "%s of %s is not sent yet, and tried again: %s", call.occasion, name, outcome.why
        )
    return outcome


#: The outbox of this process.
_OUTBOX = Outbox("calls", attempt, PAUSES)


class Carrier:
    """Sends each task after the study's end is in the ledger, and reports outcomes as events."""

    decisions = (Call,)

    def __init__(self, outbox: Outbox[Call] = _OUTBOX) -> None:
        self._outbox = outbox
        #: The calls without an outcome.
        self._open: dict[Key, Call] = {}

    def carry_out(self, decision: Call, turn: Turn, at: float) -> Event | None:
        turn.after.append(partial(self._post, decision))
        return None

    def _post(self, call: Call, ledger: Ledger) -> None:
        self._open[key_of(call)] = call
        self._outbox.put(call)

    def answers(self, at: float) -> Iterator[Event]:
        """Yield an event for each call that has an outcome since this method was last called."""
        if not self._open:  # asked at every turn
            return
        for key, outcome in self._outbox.ended(self._open).items():
            call = self._open.pop(key)
            target = json.loads(call.call)
            task, app = target["signature"]["task"], target["app"]
            if outcome.why:
                name = call.facts["name"]
                log.warning("%s was not sent for %s: %s", task, name, outcome.why)
            yield Called(
                at=at,
                cause=call.id,
                study=call.study,
                occasion=call.occasion,
                task=task,
                app=app,
                task_id=call.task_id,
                why=outcome.why,
                tries=outcome.attempts,
            )
