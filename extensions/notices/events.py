"""The decision to notify people about a study, and the events that record the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from ...base.values import Natural, value_class
from ...scheduler.model.decisions import Decision
from ...scheduler.model.events import Event

#: The occasions for a notice.
Kind = Literal["ended", "failed", "all_fail", "stands_still", "late"]


@value_class(frozen=True, slots=True, kw_only=True)
class Tell(Decision):
    """Notify one address about a study. The decision is open until a ``Told`` with its id comes."""

    #: The study's id and its name.
    study: str
    name: str
    kind: Kind
    #: The address, or the name of a variable that contains it (``addresses``).
    to: str = field(repr=False)
    #: Time of the decision (the runner's clock).
    at: float
    #: Details that depend on the kind (``letters``).
    facts: Mapping[str, Any] = field(hash=False)
    #: True if the decision was made before the scheduler started. It is not known if the notice was
    #: sent.
    again: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class Told(Event):
    """A notice was sent or was given up. ``cause`` is the id of its ``Tell``."""

    #: The study's id.
    study: str
    kind: Kind
    #: The part of the address that may be shown.
    to: str
    #: The reason why the notice was given up; empty if the service has accepted it.
    why: str = ""
    #: The number of tries.
    tries: Natural = 1


@value_class(frozen=True, slots=True, kw_only=True)
class Installed(Event):
    """The operator has set this number of addresses that are notified about all studies."""

    addresses: Natural


#: The kinds of event, by their names in a ledger.
EVENTS: Mapping[str, type[Event]] = {"notices.Told": Told, "notices.Installed": Installed}
