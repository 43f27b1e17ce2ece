"""A run's part of its trainer's time, if an extension lets several runs work there in turns."""

from __future__ import annotations

from typing import Protocol


class Passing(Protocol):
    """A turn as training sees it: its clock, and when and how it is passed on."""

    def clock(self) -> float:
        """Return the seconds on a clock that stands still while others have the turn."""

    def is_over(self) -> bool:
        """Return True if the turn should be passed on now."""

    def pass_on(self) -> None:
        """Let others have their turns, and come back for the next one."""


class Turn(Passing, Protocol):
    """A run's part in the turns. Its own thread calls all but ``hurry``."""

    #: Seconds in which others had the turn since this one's first began.
    away: float

    def begin_anew(self) -> None:
        """Begin the turn again: the time for loading so far does not count as the trial's."""

    def hurry(self) -> None:
        """Give the run the next turn, because it was stopped and must end. Safe from any thread."""
