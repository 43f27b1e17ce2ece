"""Reads what trainers report of models that make choices."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ...app.runner.reports import attempt_of, natural_of, text_of
from ...scheduler.model.events import Event
from .events import Derived, Described
from .models.architecture import Architecture


def _derived(body: Mapping[str, Any], at: float) -> Event:
    log, outline = text_of(body, "log"), text_of(body, "outline")
    for text in (log, outline):
        if not isinstance(json.loads(text), list):
            raise TypeError(f"a list is {text[:100]!r}")
    base, digest = text_of(body, "base"), text_of(body, "digest")
    return Derived(**attempt_of(body, at), log=log, base=base, digest=digest, outline=outline)


def _described(body: Mapping[str, Any], at: float) -> Event:
    counts = {each.name: natural_of(body[each.name], each.name) for each in fields(Architecture)}
    choices = body["choices"]
    if not isinstance(choices, list) or not all(isinstance(each, str) for each in choices):
        raise TypeError(f"choices = {str(choices)[:100]}")
    return Described(
        **attempt_of(body, at),
        of=text_of(body, "of"),
        architecture=Architecture(**counts),
        choices=tuple(choices),
    )


#: Readers of the reports of the trainer's end, by their kinds.
REPORTS: Mapping[str, Callable[[Mapping[str, Any], float], Event]] = {
    "derived": _derived,
    "described": _described,
}
