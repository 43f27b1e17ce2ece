"""The occasions to tell of a study, as pure functions of what is known of it.

Times are in seconds of the runner's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The number of trials that all failed, before any other has trained an epoch, to tell of it.
FIRST = 3
#: A study may stand still that was without an accepted epoch for ``STILL``, or for ``EPOCHS`` of
#: its longest ones where that is more; while its first trials run, for ``STILL_AT_FIRST``.
STILL = 600.0
EPOCHS = 3.0
STILL_AT_FIRST = 3600.0
#: A look that comes later than it was due, by more than this, says that no scheduler was there, or
#: that the study was paused: the time until then does not count.
OVERSLEPT = 30.0
#: The number of looks at a deadline up to it, and the least and the most seconds between two.
LOOKS = 50
CLOSEST, WIDEST = 10.0, 600.0
#: The part of the time up to a deadline by which a forecast must miss it: it is no bound.
TOLERANCE = 0.05


def all_fail(failed: int, others: int) -> bool:
    """Return True if all trials fail, where ``others`` have ended well or trained an epoch."""
    return not others and failed >= FIRST


def patience(longest: float) -> float:
    """Return the longest time without an epoch to tolerate, given the ``longest`` epoch."""
    return max(STILL, EPOCHS * longest)


@dataclass(frozen=True, slots=True)
class Standing:
    """A study at a look at whether it stands still."""

    #: When its last epoch was accepted, or it began.
    since: float
    #: When this look was due.
    due: float
    #: The longest epoch so far; 0 if there was none.
    longest: float
    #: True if trials of it run.
    runs: bool
    #: True if it has trials to run, or has asked for some.
    has_work: bool
    #: True if the devices that it may use are busy with other studies.
    queues: bool


def look_again(now: float, standing: Standing) -> tuple[float, float] | None:
    """Return since when the study counts as without an epoch, and when to look again.

    None: it stands still.
    """
    excused = not standing.has_work or (standing.queues and not standing.runs)
    if excused or now - standing.due > OVERSLEPT:
        return now, now + patience(standing.longest)
    if standing.runs and not standing.longest and now - standing.since < STILL_AT_FIRST:
        return standing.since, standing.since + STILL_AT_FIRST
    return None


def until_next_look(span: float) -> float:
    """Return the seconds between two looks at a deadline that comes ``span`` after the start."""
    return min(WIDEST, max(CLOSEST, span / LOOKS))


def is_late(misses_by: float | None, span: float) -> bool:
    """Return True if a forecast misses the deadline by more than ``TOLERANCE`` of ``span``."""
    return misses_by is not None and misses_by > TOLERANCE * span
