"""The event of editing: a person has changed a study that runs."""

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
    """A user changes a study that runs. What its trials have learnt stays."""

    #: The study's id.
    study: str
    #: The study as it is from now on.
    spec: StudySpec
    changes: tuple[Change, ...]
    #: The user, as they call themselves.
    who: str = ""
    #: Their reason; empty if they gave none.
    why: str = ""


#: The kind of event, by its name in a ledger.
EVENTS: Mapping[str, type[Event]] = {"editing.Edited": Edited}
