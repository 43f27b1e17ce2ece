"""The event of steering: a person has decided about one trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ...base.values import Natural, value_class
from ...scheduler.model.events import Event

#: The things that can be done to a trial.
Verb = Literal["stop", "pause", "resume", "promote", "retry"]


@value_class(frozen=True, slots=True, kw_only=True)
class Steered(Event):
    """A user stops, pauses, resumes or promotes a trial, or has a failed one tried again."""

    #: The trial's id.
    trial: str
    verb: Verb
    #: To promote: the epoch that it is to reach; 0: its next rung.
    to: Natural = 0
    #: The user, as they call themselves.
    who: str = ""
    #: Their reason; empty if they gave none.
    why: str = ""


#: The kind of event, by its name in a ledger.
EVENTS: Mapping[str, type[Event]] = {"steering.Steered": Steered}
