"""The decision to notify someone about a study, and the events that record the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from ...base.values import Natural, value_class
from ...scheduler.model.decisions import Decision
from ...scheduler.model.events import Event

#: The occasions on which a notice is sent.
Kind = Literal["ended", "failed", "all_fail", "stands_still", "late"]


@value_class(frozen=True, slots=True, kw_only=True)
class Tell(Decision):
    """A decision to notify one address about a study.

    The decision is open until an event ``Told`` has its id as ``cause``.
    """

    #: The study's id and its name.
    study: str
    name: str
    kind: Kind
    #: The address, or the name of a variable that contains the address (``addresses``).
    to: str = field(repr=False)
    #: The time of the decision in seconds of the runner's clock.
    at: float
    #: Facts for the text of the notice, which depend on the kind (``letters``).
    facts: Mapping[str, Any] = field(hash=False)
    #: True if an earlier process of the scheduler made the decision. Then nobody knows if the
    #: notice was sent.
    again: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class Told(Event):
    """An event: a notice was sent, or sending the notice was given up.

    ``cause`` is the id of the notice's ``Tell``.
    """

    #: The study's id.
    study: str
    kind: Kind
    #: The part of the address that may be shown (``addresses.shown``).
    to: str
    #: The reason why the notice was given up; empty if the service has accepted it.
    why: str = ""
    #: The number of times that sending was tried.
    tries: Natural = 1


@value_class(frozen=True, slots=True, kw_only=True)
class Installed(Event):
    """An event: the operator has changed how many addresses are notified about all studies."""

    addresses: Natural


#: The kinds of event, by their names in a ledger.
EVENTS: Mapping[str, type[Event]] = {"notices.Told": Told, "notices.Installed": Installed}
