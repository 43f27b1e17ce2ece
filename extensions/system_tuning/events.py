"""The events of system tuning and their names in a ledger. Names without a dot are from 0.2."""

from __future__ import annotations

from collections.abc import Mapping

from ...scheduler.model.events import Event
from .asked.decisions import Advised, ConfigsProposed, Recalled
from .name import NAME
from .races.measured import Profiled, Rehearsed, WindowsMeasured

#: The kinds of event, by their names.
EVENTS: Mapping[str, type[Event]] = {
    **{each.__name__: each for each in (WindowsMeasured, Profiled, Advised, ConfigsProposed)},
    **{f"{NAME}.{each.__name__}": each for each in (Recalled, Rehearsed)},
}
