"""The decision that someone is told of a study, and the events of what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from ...base.values import Natural, value_class
from ...scheduler.model.decisions import Decision
from ...scheduler.model.events import Event

#: The occasions on which people are told.
Kind = Literal["ended", "failed", "all_fail", "stands_still", "late"]


@value_class(frozen=True, slots=True, kw_only=True)
class Tell(Decision):
    """Tell one address of a study. It is a question until a ``Told`` with its id answers it."""

    #: The study's id and its name.
    study: str
    name: str
    kind: Kind
    #: The address, or the name of the variable that has it (``addresses``).
    to: str = field(repr=False)
    #: When it was decided (the runner's clock).
    at: float
    #: The particulars of its kind (``letters``).
    facts: Mapping[str, Any] = field(hash=False)
    #: True if it was decided before the scheduler began: nobody knows whether it was sent.
    again: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class Told(Event):
    """A notice was sent, or was given up. ``cause`` is the id of its ``Tell``."""

    #: The study's id.
    study: str
    kind: Kind
    #: The part of the address that may be shown.
    to: str
    #: The reason why it was given up; empty if the service has accepted it.
    why: str = ""
    #: The number of tries.
    tries: Natural = 1


@value_class(frozen=True, slots=True, kw_only=True)
class Installed(Event):
    """The operator has all studies told of to this number of addresses of the installation."""

    addresses: Natural


#: The kinds of event, by their names in a ledger.
EVENTS: Mapping[str, type[Event]] = {"notices.Told": Told, "notices.Installed": Installed}
