"""Reads what the trainer's end reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ...app.runner.reports import attempt_of, natural_of, text_of
from ...profiling.base.footprint import Footprint
from ...scheduler.model.events import Event
from .events import FootprintReported


def _footprint(body: Mapping[str, Any], at: float) -> Event:
    amounts = {each.name: natural_of(body[each.name], each.name) for each in fields(Footprint)}
    return FootprintReported(
        **attempt_of(body, at),
        of=text_of(body, "of"),
        footprint=Footprint(**amounts),
        measured=bool(body["measured"]),
        base=natural_of(body["base"], "base"),
        recurrent=bool(body["recurrent"]),
        failed=text_of(body, "failed"),
    )


#: Readers of the reports of the trainer's end, by their kinds.
REPORTS: Mapping[str, Callable[[Mapping[str, Any], float], Event]] = {"footprint": _footprint}
