"""The event of memory: what a trainer has estimated or measured."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.footprint import Footprint
from ...base.values import Natural, Whole, value_class
from ...scheduler.model.events import Event


@value_class(frozen=True, slots=True, kw_only=True)
class FootprintReported(Event):
    """An attempt of ``trial`` found what memory the trial ``of`` needs.

    ``failed`` says why it could not be estimated; the footprint is then all 0. ``recurrent``:
    estimates of such a model are less certain. ``base`` is what the process of the attempt had
    before it (bytes).
    """

    trial: str
    fence: Whole
    of: str
    footprint: Footprint
    measured: bool
    base: Natural = 0
    recurrent: bool = False
    failed: str = ""


#: The kind of event, by its name in a ledger. It is that of 0.2.
EVENTS: Mapping[str, type[Event]] = {"FootprintReported": FootprintReported}
