"""A run's part of its trainer's time, if an extension lets several runs work there in turns."""

from __future__ import annotations

from typing import Protocol


class Passing(Protocol):
    """A turn as training sees it: its clock, and when and how it is passed on."""

    def clock(self) -> float:
        """Return the seconds on a clock that stands still while other runs have the turn."""

    def is_over(self) -> bool:
        """Return True if the turn should be passed on now."""

    def pass_on(self) -> None:
        """Let other runs have their turns; return when this run has the turn again."""


class Turn(Passing, Protocol):
    """One run's side of the turns. The run's own thread calls all methods but ``hurry``."""

    #: Seconds in which other runs had the turn since this run's first turn began.
    away: float

    def begin_anew(self) -> None:
        """Restart the current turn, so that the time spent on loading is not charged to the run."""

    def hurry(self) -> None:
        """Give a stopped run the next turn, so that the run can end. Any thread may call this."""
