"""The occasions for a notice about a study, as pure functions of known facts about the study.

Times are in seconds of the runner's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Number of failed trials after which people are notified, if no other trial has trained an epoch.
FIRST = 3
#: Seconds without an accepted epoch after which a study may stand still. The limit is ``EPOCHS``
#: times its longest epoch if that is more, and ``STILL_AT_FIRST`` while its first trials run.
STILL = 600.0
EPOCHS = 3.0
STILL_AT_FIRST = 3600.0
#: Seconds. If a check comes later than it was due by more than this, no scheduler ran, or the study
#: was paused. The time until then does not count.
OVERSLEPT = 30.0
#: Number of checks up to a deadline, and the least and the most seconds between two checks.
LOOKS = 50
CLOSEST, WIDEST = 10.0, 600.0
#: A forecast must miss a deadline by this part of the time up to it, since a forecast is not exact.
TOLERANCE = 0.05


def all_fail(failed: int, others: int) -> bool:
    """Return True if all trials of a study fail, and enough have failed to notify people."""
    return not others and failed >= FIRST


def patience(longest: float) -> float:
    """Return the longest tolerable time without an epoch, if the longest epoch took ``longest``."""
    return max(STILL, EPOCHS * longest)


@dataclass(frozen=True, slots=True)
class Standing:
    """Facts about a study at a check for a standstill."""

    #: Time when the study's last epoch was accepted, or when the study started.
    since: float
    #: Time when this check was due.
    due: float
    #: Seconds of the study's longest epoch so far; 0 if there was none.
    longest: float
    #: True if any of its trials is running.
    runs: bool
    #: True if the study has trials to run, or has asked for some.
    has_work: bool
    #: True if all devices that the study may use are busy with other studies.
    queues: bool


def look_again(now: float, standing: Standing) -> tuple[float, float] | None:
    """Return the start of the time without an epoch, and the time of the next check.

    Returns None if the study stands still.
    """
    excused = not standing.has_work or (standing.queues and not standing.runs)
    if excused or now - standing.due > OVERSLEPT:
        return now, now + patience(standing.longest)
    if standing.runs and not standing.longest and now - standing.since < STILL_AT_FIRST:
        return standing.since, standing.since + STILL_AT_FIRST
    return None


def until_next_look(span: float) -> float:
    """Return the seconds between two checks of a deadline ``span`` seconds after the start."""
    return min(WIDEST, max(CLOSEST, span / LOOKS))


def is_late(misses_by: float | None, span: float) -> bool:
    """Return True if a forecast misses the deadline by more than ``TOLERANCE`` of ``span``."""
    return misses_by is not None and misses_by > TOLERANCE * span
