"""Pure functions that decide from the facts about a study if people must be notified.

Times are in seconds of the runner's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The number of failed trials after which people are notified, if no other trial has trained an
#: epoch.
FIRST = 3
#: Seconds without an accepted epoch after which a study counts as standing still. The time is
#: longer in two cases: ``EPOCHS`` times the study's longest epoch if that is more, and
#: ``STILL_AT_FIRST`` while the first trials run.
STILL = 600.0
EPOCHS = 3.0
STILL_AT_FIRST = 3600.0
#: Seconds. If a check comes this much later than planned, no scheduler was running, or the study
#: was paused. The time until that check does not count as standing still.
OVERSLEPT = 30.0
#: The number of checks of a forecast up to a deadline, and the least and the most seconds between
#: two of these checks.
LOOKS = 50
CLOSEST, WIDEST = 10.0, 600.0
#: The fraction of the time up to a deadline by which a forecast must miss the deadline for a
#: notice, since a forecast is not exact.
TOLERANCE = 0.05


def all_fail(failed: int, others: int) -> bool:
    """Return True if all trials of a study fail, and if enough have failed to notify people.

    ``failed`` is the number of failed trials. ``others`` is the number of other trials that have
    trained an epoch.
    """
    return not others and failed >= FIRST


def patience(longest: float) -> float:
    """Return the longest time (seconds) without an epoch after which a study is still in order.

    ``longest`` is the duration of the study's longest epoch in seconds.
    """
    return max(STILL, EPOCHS * longest)


@dataclass(frozen=True, slots=True)
class Standing:
    """The facts about a study from which a check decides if the study stands still."""

    #: The time when the study's last epoch was accepted, or when the study started if it has no
    #: epoch.
    since: float
    #: The time for which this check was planned.
    due: float
    #: Seconds of the study's longest epoch so far; 0 if there was none.
    longest: float
    #: True if a trial of the study is running.
    runs: bool
    #: True if the study has trials to run, or has asked its sampler for trials.
    has_work: bool
    #: True if all devices that the study may use are busy with other studies.
    queues: bool


def look_again(now: float, standing: Standing) -> tuple[float, float] | None:
    """Return when the time without an epoch began, and when the next check is due.

    Return None if the study stands still.
    """
    excused = not standing.has_work or (standing.queues and not standing.runs)
    if excused or now - standing.due > OVERSLEPT:
        return now, now + patience(standing.longest)
    if standing.runs and not standing.longest and now - standing.since < STILL_AT_FIRST:
        return standing.since, standing.since + STILL_AT_FIRST
    return None


def until_next_look(span: float) -> float:
    """Return the seconds between two checks of a deadline.

    ``span`` is the time from the study's start to its deadline in seconds.
    """
    return min(WIDEST, max(CLOSEST, span / LOOKS))


def is_late(misses_by: float | None, span: float) -> bool:
    """Return True if a forecast misses a deadline by enough to notify people.

    ``misses_by`` is the forecast delay in seconds, or None if there is no forecast. ``span`` is the
    time from the study's start to its deadline in seconds.
    """
    return misses_by is not None and misses_by > TOLERANCE * span
