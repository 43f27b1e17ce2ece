"""Policy ``shuffle``: every trial at another random width after every epoch. For tests of
exactness.

Results must not depend on where trials run; this policy places them as badly as possible.
"""

from __future__ import annotations

from ..model.snapshot import Plan, Snapshot


def shuffle(snapshot: Snapshot) -> Plan:
    """Plan waiting trials in order of arrival, with widths sampled by trial and epoch."""
    return Plan(tuple(candidate.trial for candidate in snapshot.waiting), shuffle=True)
