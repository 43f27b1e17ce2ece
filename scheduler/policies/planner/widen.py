"""Equal-share widening: devices that no trial waits for widen running trials, evenly.

A waiting trial always comes before width: one more trial on a device of its own needs no exchange.
Of the devices that are left, the trials in their order take one each in turn, up to their largest
width. Widening is tried if an epoch is long enough to repay the exchange. It is taken back if
measurements show that it is no faster.
"""

from __future__ import annotations

from ...model.snapshot import Candidate, Snapshot

#: The shortest epoch (seconds) for which a wider gang is tried: a resize was measured to take 17 to
#: 100 ms, depending on the size of the state (docs/history/measured.md).
MIN_EPOCH_SECONDS = 0.2
#: A width is kept if the seconds of its epochs, divided by those at the next smaller measured
#: width, are at most this.
MAX_TIME_RATIO = 0.95


def widen_equally(snapshot: Snapshot) -> dict[str, int]:
    """Return the width to plan for every trial that may use more than one device."""
    candidates = sorted(
        (*snapshot.running, *snapshot.waiting),
        key=lambda candidate: (candidate.since, candidate.trial),
    )
    elastic = [candidate for candidate in candidates if candidate.widest > 1]
    widths = {candidate.trial: 1 for candidate in elastic}
    idle = snapshot.free_devices - len(snapshot.waiting)
    idle += sum(candidate.width - 1 for candidate in snapshot.running)
    growing = [candidate for candidate in elastic if _may_grow(candidate)]
    while idle > 0 and growing:
        for candidate in growing[:idle]:
            widths[candidate.trial] += 1
            idle -= 1
        growing = [candidate for candidate in growing if widths[candidate.trial] < candidate.widest]
    return {
        candidate.trial: _best_measured(candidate, widths[candidate.trial]) for candidate in elastic
    }


def _may_grow(candidate: Candidate) -> bool:
    if candidate.width > 1:
        return True
    return candidate.epoch_seconds is not None and candidate.epoch_seconds >= MIN_EPOCH_SECONDS


def _best_measured(candidate: Candidate, width: int) -> int:
    """Return the best measured width up to ``width``.

    Return ``width`` if that width was not measured.
    """
    speeds = {measured: seconds for measured, seconds in candidate.speeds if measured <= width}
    if width not in speeds:
        return width
    best = min(speeds)
    for measured in sorted(speeds):
        if speeds[measured] <= MAX_TIME_RATIO * speeds[best]:
            best = measured
    return best
