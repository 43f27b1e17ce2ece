"""The event in the ledger that records how a user has changed a running study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...base.values import value_class
from ...scheduler.model.events import Event
from ...scheduler.model.study import StudySpec


class Change(NamedTuple):
    """A change of one parameter or setting, with its value before and after in words."""

    name: str
    before: str
    after: str


@value_class(frozen=True, slots=True, kw_only=True)
class Edited(Event):
    """An event: a user has changed a running study. The states of its trials are kept."""

    #: The study's id.
    study: str
    #: The whole specification of the study after the edit.
    spec: StudySpec
    changes: tuple[Change, ...]
    #: The name of the user, as the user's command gave it.
    who: str = ""
    #: The user's reason; empty if the user gave none.
    why: str = ""


#: The extension's event class, by the name under which a ledger stores its events.
EVENTS: Mapping[str, type[Event]] = {"editing.Edited": Edited}
