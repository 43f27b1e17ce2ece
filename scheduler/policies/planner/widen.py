"""Equal-share widening: devices that no trial waits for widen running trials, evenly.

A waiting trial always comes before width: one more trial on a device of its own is work that needs
no exchange. Of the devices that are left, the trials in their order take one each in turn, up to
their largest width. Widening is tried if an epoch is long enough to repay the exchange. It is taken
back if it was measured to be no faster.
"""

from __future__ import annotations

from ...model.snapshot import Candidate, Snapshot

#: A wider gang is not tried for shorter epochs than this (seconds): a resize was measured to take
#: 17 to 100 ms, depending on the size of the state (docs/measured.md).
MIN_EPOCH_SECONDS = 0.2
#: A width is kept if its epochs take at most this part of those of the next smaller measured width.
MAX_TIME_RATIO = 0.95


def widen_equally(snapshot: Snapshot) -> dict[str, int]:
    """The width of every trial that may use more than one device."""
    candidates = sorted(
        (*snapshot.running, *snapshot.waiting), key=lambda each: (each.since, each.trial)
    )
    elastic = [each for each in candidates if each.widest > 1]
    widths = {each.trial: 1 for each in elastic}
    spare = snapshot.free_devices - len(snapshot.waiting)
    spare += sum(each.width - 1 for each in snapshot.running)
    growing = [each for each in elastic if _may_grow(each)]
    while spare > 0 and growing:
        for each in growing[:spare]:
            widths[each.trial] += 1
            spare -= 1
        growing = [each for each in growing if widths[each.trial] < each.widest]
    return {each.trial: _best_measured(each, widths[each.trial]) for each in elastic}


def _may_grow(each: Candidate) -> bool:
    if each.width > 1:
        return True
    return each.epoch_seconds is not None and each.epoch_seconds >= MIN_EPOCH_SECONDS


def _best_measured(each: Candidate, width: int) -> int:
    """The best measured width up to ``width``, or ``width`` itself if it was not measured."""
    speeds = {measured: seconds for measured, seconds in each.speeds if measured <= width}
    if width not in speeds:
        return width
    best = min(speeds)
    for measured in sorted(speeds):
        if speeds[measured] <= MAX_TIME_RATIO * speeds[best]:
            best = measured
    return best
