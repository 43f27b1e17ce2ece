"""Reads the reports of trainers on models that make choices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...app.server.runner.reports import Reader, read_as
from ...scheduler.model.events import Event
from .events import Derived, Described
from .models.architecture import Architecture

_COUNTS = tuple(field.name for field in fields(Architecture))


def _derived(body: Mapping[str, Any], at: float) -> Event:
    for name in ("log", "outline"):
        if not isinstance(json.loads(body[name]), list):
            raise TypeError(f"{name} is no list: {body[name][:100]!r}")
    return read_as(Derived, body, at=at)


def _described(body: Mapping[str, Any], at: float) -> Event:
    counts = {name: body[name] for name in _COUNTS}
    return read_as(Described, body, at=at, without=_COUNTS, architecture=counts)


#: The reader of each kind of report that the trainer's end sends.
REPORTS: Mapping[str, Reader] = {"derived": _derived, "described": _described}
