"""Policy: every trial at another width after every epoch, at random. For tests of exactness.

What a study gives must not depend on how it was placed; here it is placed as badly as can be.
"""

from __future__ import annotations

from ..model.snapshot import Plan, Snapshot


def shuffle(snapshot: Snapshot) -> Plan:
    """Waiting trials in order of arrival, widths drawn by trial and epoch."""
    return Plan(tuple(each.trial for each in snapshot.waiting), shuffle=True)
