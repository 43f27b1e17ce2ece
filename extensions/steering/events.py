"""The event of steering: a user's decision on one trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ...base.values import Natural, value_class
from ...scheduler.model.events import Event

#: The commands for a single trial.
Verb = Literal["stop", "pause", "resume", "promote", "retry"]


@value_class(frozen=True, slots=True, kw_only=True)
class Steered(Event):
    """A user stops, pauses, resumes or promotes a trial, or lets a failed trial be tried again."""

    #: The trial's id.
    trial: str
    verb: Verb
    #: For a promotion: the epoch to reach, or 0 for the next rung.
    to: Natural = 0
    #: The user, as *ada@lab-3*; empty if unknown.
    who: str = ""
    #: The user's reason; empty if none was given.
    why: str = ""


#: The kind of event, by its name in a ledger.
EVENTS: Mapping[str, type[Event]] = {"steering.Steered": Steered}
