"""Seats: the slots of a lane in which several trials share the lane.

A lane is one trainer. The class here gives no seats: a lane has one trial at a time, which has all
of the lane's time. An extension may replace it (``Extension.seats``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model.decisions import Member
    from ..model.trial import Trial
    from .state import Attempt, DeviceState


class Seats:
    """Seats that are never shared: each lane has one trial."""

    def free(self) -> list[Member]:
        """Return one free seat of each lane in use that may take another trial."""
        return []

    def open_to(self, seats: Sequence[Member], free: int) -> Callable[[Trial], Sequence[Member]]:
        """Return a function that returns those of ``seats`` that a waiting trial may take.

        The function is valid only for the slots that are given out now, of which ``free`` are free.
        ``Extension.too_full`` may still refuse a seat.
        """
        return lambda trial: ()

    def entered(self, attempt: Attempt) -> Mapping[str, Any]:
        """Divide a lane's time again after an attempt has taken a seat in the lane.

        Return the values that tell the lane's trainer, as in ``SegmentValues.ext``.
        """
        return {}

    def left(self, device: DeviceState, lane: int) -> None:
        """Divide a lane's time again after an attempt has left the lane."""

    def use_lanes(self, free: Sequence[Member]) -> None:
        """Make residents leave their lanes for those of the free slots that are lanes."""

    def thin_out(self, device: str) -> None:
        """Make residents leave a device whose lanes hold too many."""

    def why_idle(self, attempt: Attempt) -> str:
        """Return the reason why a resident has no part of its lane's time; empty if it has one."""
        return ""

    def facts(self, device: str) -> list[Mapping[str, Any]]:
        """Return the facts to show about each lane in use of a device."""
        return []


#: The seats used if no extension gives any.
NO_SEATS = Seats()
