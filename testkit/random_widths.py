"""A policy of one's own that places trials as badly as it can: at other widths all the time.

    PENSTOCK_POLICY=penstock.testkit.random_widths:random_widths

Results must not depend on where trials run, so tests and benchmarks of exactness run under it. Each
plan draws, for each trial, on how many devices it trains its next epoch. The end of that epoch is
what asks for the next plan.
"""

from __future__ import annotations

import random

from penstock.scheduler.model.snapshot import Plan, Snapshot, WidthPlan

#: Value of ``PENSTOCK_POLICY``. The scheduler imports it where ``benchmarks`` is no package.
RANDOM_WIDTHS = "penstock.testkit.random_widths:random_widths"


def random_widths(snapshot: Snapshot) -> Plan:
    """Waiting trials in a random order, all trials at random widths. Equal questions draw alike."""
    rng = random.Random(repr(snapshot.at))
    width_plans = {}

    # Each gets another width than it has or had: at that one, what runs would go on to the end of
    # its segment, which may be long. While any runs, all wait until their devices are free: its end
    # leads to another plan. Else who waits begins on one device, where too few are free.
    for each in snapshot.running + snapshot.waiting:
        widths = range(1, 1 + max(1, min(each.widest, snapshot.devices)))
        wide = rng.choice([width for width in widths if width != each.width] or widths)
        narrow = wide if snapshot.running else 1
        width_plans[each.trial] = WidthPlan(narrow=narrow, wide=wide, epochs=1)
    order = rng.sample(snapshot.waiting, len(snapshot.waiting))
    return Plan(
        tuple(each.trial for each in order),
        {trial: plan.wide for trial, plan in width_plans.items()},
        patient=True,
        courses=width_plans,
    )
