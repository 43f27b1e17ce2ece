"""Seats: slots of lanes that have several, in which trials may be beside each other.

A lane is one trainer. What is said here holds where no extension gives seats (``Extension.seats``):
a lane has one trial at a time, which has all of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model.decisions import Member
    from ..model.trial import Trial
    from .state import Attempt, DeviceState


class Seats:
    """No trial takes a seat beside others."""

    def free(self) -> list[Member]:
        """Return one free seat of each lane in use that may take another trial."""
        return []

    def open_to(self, seats: Sequence[Member], free: int) -> Callable[[Trial], Sequence[Member]]:
        """Return what tells which of these seats a waiting trial may take, as long as slots are
        given out now, of which so many are free.

        ``Extension.too_full`` has the last word.
        """
        return lambda trial: ()

    def entered(self, attempt: Attempt) -> Mapping[str, Any]:
        """Divide a lane's time anew, in which an attempt has just got a seat.

        Returns what its trainer is told of that, as ``SegmentValues.ext``.
        """
        return {}

    def left(self, device: DeviceState, lane: int) -> None:
        """Divide a lane's time anew, which an attempt has just left."""

    def use_lanes(self, free: Sequence[Member]) -> None:
        """Have residents leave lanes for those of the free slots that are lanes."""

    def thin_out(self, device: str) -> None:
        """Have residents leave a device whose lanes have too many."""

    def why_idle(self, attempt: Attempt) -> str:
        """Say why a resident has nothing of its lane's time for now; empty if it has."""
        return ""

    def facts(self, device: str) -> list[Mapping[str, Any]]:
        """Return what is to be shown of each lane of a device that is in use."""
        return []


#: The seats where no extension gives any.
NO_SEATS = Seats()
