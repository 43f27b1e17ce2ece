"""The event of branches: a person has made trials out of another one."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.values import Natural, value_class
from ...scheduler.model.events import Event
from ...scheduler.model.study import Params


@value_class(frozen=True, slots=True, kw_only=True)
class Branched(Event):
    """A user has trials go on from a trial's state after an epoch, under other values."""

    #: The id of the trial that they are made of.
    trial: str
    #: The epoch after which they begin.
    epoch: Natural
    #: The epoch that they are to reach.
    to: Natural
    #: Their parameters.
    params: Params
    #: Parameters that differ from the parent's.
    changed: Params = ()
    #: The number of branches. All but the first draw random numbers of their own.
    copies: Natural = 1
    #: The names of values that lie outside of the study's space.
    outside: tuple[str, ...] = ()
    #: The user, as they call themselves.
    who: str = ""
    #: Their reason; empty if they gave none.
    why: str = ""


#: The kind of event, by its name in a ledger.
EVENTS: Mapping[str, type[Event]] = {"branches.Branched": Branched}
