"""The event in the ledger that records a user's command for a single trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ...base.values import Natural, value_class
from ...scheduler.model.events import Event

#: The commands that a user can give for a single trial.
Verb = Literal["stop", "pause", "resume", "promote", "retry"]


@value_class(frozen=True, slots=True, kw_only=True)
class Steered(Event):
    """A user's command for a single trial: stop, pause, resume, promote or retry."""

    #: The trial's id.
    trial: str
    verb: Verb
    #: The epoch that a promoted trial is to reach, or 0 for its next rung. Other commands have 0.
    to: Natural = 0
    #: The user who gave the command, such as *ada@lab-3*; empty if the user is not known.
    who: str = ""
    #: The user's reason; empty if the user gave none.
    why: str = ""


#: The extension's event class, by the name under which a ledger stores its events.
EVENTS: Mapping[str, type[Event]] = {"steering.Steered": Steered}
