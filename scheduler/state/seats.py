"""Seats: the slots of a lane that has several, in which trials share the lane.

A lane is one trainer. The class here gives no seats: a lane has one trial at a time, which has all
of its time. An extension may replace it (``Extension.seats``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model.decisions import Member
    from ..model.trial import Trial
    from .state import Attempt, DeviceState


class Seats:
    """Seats that no trial takes: each lane has one trial."""

    def free(self) -> list[Member]:
        """Return one free seat of each lane in use that may take another trial."""
        return []

    def open_to(self, seats: Sequence[Member], free: int) -> Callable[[Trial], Sequence[Member]]:
        """Return a function that returns the ``seats`` which a waiting trial may take.

        It holds as long as slots are given out now, of which ``free`` are free.
        ``Extension.too_full`` has the last word.
        """
        return lambda trial: ()

    def entered(self, attempt: Attempt) -> Mapping[str, Any]:
        """Divide a lane's time again after an attempt has got a seat in it.

        Returns the values that tell its trainer of that, as ``SegmentValues.ext``.
        """
        return {}

    def left(self, device: DeviceState, lane: int) -> None:
        """Divide a lane's time again after an attempt has left it."""

    def use_lanes(self, free: Sequence[Member]) -> None:
        """Have residents leave lanes for those of the free slots that are lanes."""

    def thin_out(self, device: str) -> None:
        """Have residents leave a device whose lanes have too many."""

    def why_idle(self, attempt: Attempt) -> str:
        """Say why a resident has nothing of its lane's time for now; empty if it has."""
        return ""

    def facts(self, device: str) -> list[Mapping[str, Any]]:
        """Return the facts to be shown of each lane of a device that is in use."""
        return []


#: The seats if no extension gives any.
NO_SEATS = Seats()
