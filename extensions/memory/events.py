"""The event of memory: a trainer has estimated or measured a trial's memory need."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.footprint import Footprint
from ...base.values import Natural, Whole, value_class
from ...scheduler.model.events import Event


@value_class(frozen=True, slots=True, kw_only=True)
class FootprintReported(Event):
    """An attempt of ``trial`` has estimated or measured the memory need of the trial ``of``.

    ``failed`` is the reason if the need could not be estimated; the footprint is then all 0.
    ``recurrent`` is True for models with recurrent layers, whose estimates are less certain.
    ``base`` is the memory (bytes) of the attempt's process before the attempt.
    """

    trial: str
    fence: Whole
    of: str
    footprint: Footprint
    measured: bool
    base: Natural = 0
    recurrent: bool = False
    failed: str = ""


#: The kind of event, by its name in a ledger, which is the same as in release 0.2.
EVENTS: Mapping[str, type[Event]] = {"FootprintReported": FootprintReported}
