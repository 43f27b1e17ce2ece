"""Reads the reports of the trainer's end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...app.server.runner.reports import Reader, read_as
from ...base.footprint import Footprint
from ...scheduler.model.events import Event
from .events import FootprintReported

_AMOUNTS = tuple(field.name for field in fields(Footprint))


def _footprint(body: Mapping[str, Any], at: float) -> Event:
    amounts = {name: body[name] for name in _AMOUNTS}
    return read_as(FootprintReported, body, at=at, without=_AMOUNTS, footprint=amounts)


#: Readers of the reports of the trainer's end, by kind of report.
REPORTS: Mapping[str, Reader] = {"footprint": _footprint}
