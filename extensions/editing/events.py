"""The event of editing: a user has changed a running study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...base.values import value_class
from ...scheduler.model.events import Event
from ...scheduler.model.study import StudySpec


class Change(NamedTuple):
    """A parameter or a setting that was changed, in words."""

    name: str
    before: str
    after: str


@value_class(frozen=True, slots=True, kw_only=True)
class Edited(Event):
    """A user has changed a running study. The states of its trials are kept."""

    #: The study's id.
    study: str
    #: The study's specification from now on.
    spec: StudySpec
    changes: tuple[Change, ...]
    #: The user's name, as the user gave it.
    who: str = ""
    #: The user's reason; empty if none was given.
    why: str = ""


#: The kind of event, by its name in a ledger.
EVENTS: Mapping[str, type[Event]] = {"editing.Edited": Edited}
