"""The event of branches: a user has branched a trial."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.values import Natural, value_class
from ...scheduler.model.events import Event
from ...scheduler.model.study import Params


@value_class(frozen=True, slots=True, kw_only=True)
class Branched(Event):
    """A user has created trials that continue from a trial's state with other values."""

    #: The id of the trial that is branched.
    trial: str
    #: The epoch after which the branches begin.
    epoch: Natural
    #: The last epoch that the branches are to train.
    to: Natural
    #: The branches' parameters.
    params: Params
    #: The parameters that differ from those of ``trial``.
    changed: Params = ()
    #: The number of branches. All but the first draw random numbers of their own.
    copies: Natural = 1
    #: The names of values that lie outside of the study's space.
    outside: tuple[str, ...] = ()
    #: The user's name, as the user gave it.
    who: str = ""
    #: The user's reason; empty if none was given.
    why: str = ""


#: The kind of event, by its name in a ledger.
EVENTS: Mapping[str, type[Event]] = {"branches.Branched": Branched}
