"""Seats: the slots of a lane that has several, in which trials share the lane.

A lane is one trainer process, and the trials in its seats, its residents, take turns. The class
here gives no seats in lanes with a resident: a lane has one trial at a time, which has all of the
lane's time. An extension may replace the class (``Extension.seats``).
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
        """Return one free seat of each lane in use that may take another resident."""
        return []

    def open_to(self, seats: Sequence[Member], free: int) -> Callable[[Trial], Sequence[Member]]:
        """Return a function that returns those of ``seats`` that a waiting trial may take.

        ``free`` is the number of free slots. Use the function only in the present round of giving
        out slots. ``Extension.too_full`` may still rule out a seat that the function returns.
        """
        return lambda trial: ()

    def entered(self, attempt: Attempt) -> Mapping[str, Any]:
        """Divide a lane's time again after an attempt has taken a seat in the lane.

        Return the values that are sent to the lane's trainer about it (``SegmentValues.ext``).
        """
        return {}

    def left(self, device: DeviceState, lane: int) -> None:
        """Divide a lane's time again after an attempt has left the lane."""

    def use_lanes(self, free: Sequence[Member]) -> None:
        """Make residents leave shared lanes for the free lanes among the slots ``free``."""

    def thin_out(self, device: str) -> None:
        """Make residents leave if the device has too many lanes in use, or a lane is too full."""

    def why_idle(self, attempt: Attempt) -> str:
        """Return the reason why a resident has no part of its lane's time now; empty if it has."""
        return ""

    def facts(self, device: str) -> list[Mapping[str, Any]]:
        """Return the facts to show about each lane in use of a device."""
        return []


#: The seats of an engine without an extension for them.
NO_SEATS = Seats()
