"""The scheduler's end of the extension: gives several trials seats and turns in one lane.

``seats`` decides which trials share or leave a lane, and ``weights`` divides a lane's time.
"""

from __future__ import annotations

from typing import Any

from ...scheduler.engine.engine import Parts
from ...scheduler.state.extensions import Extension
from .name import NAME
from .seats import LaneSeats
from .weights import Turns

__all__ = ["STATE", "convert", "plug"]

#: The type of the extension's state, by which snapshots are read.
STATE = Turns


def plug(parts: Parts) -> Extension:
    """Return the extension that lets several trials share a lane."""
    seats = LaneSeats(parts.core)
    return Extension(
        name=NAME,
        seats=seats,
        too_full=seats.no_seat,
        crowding=seats.turns_beside,
    )


def convert(snapshot: dict[str, Any]) -> None:
    """Move the weights of turns in a snapshot of release 0.2 to the extension's own state."""
    weights = {}
    for fence, attempt in snapshot["attempts"].items():
        weight = attempt.pop("weight", None)  # attempts of newer snapshots have none
        if weight is not None and attempt.get("counted_at") is not None:
            weights[fence] = weight
            _note_need(snapshot, attempt)
    if weights:
        snapshot["ext"][NAME] = {"weights": weights}


def _note_need(snapshot: dict[str, Any], attempt: dict[str, Any]) -> None:
    """Note that the study of ``attempt`` needs the extension if the attempt has shared its lane."""
    if attempt.get("accompanied"):
        needs = snapshot["studies"][attempt["study"]].setdefault("needs", [])
        needs += [] if NAME in needs else [NAME]
