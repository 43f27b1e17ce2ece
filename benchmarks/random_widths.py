"""A policy of one's own that places trials as badly as it can: at other widths all the time.

    PENSTOCK_POLICY=penstock.benchmarks.random_widths:random_widths

Results must not depend on where trials run, so tests and benchmarks of exactness run under it. Each
plan draws, for each trial, on how many devices it trains its next epoch. The end of that epoch is
what asks for the next plan.
"""

from __future__ import annotations

import random

from penstock.scheduler.model.snapshot import Candidate, Course, Plan, Snapshot

#: What ``PENSTOCK_POLICY`` says. The scheduler imports it where ``benchmarks`` is no package.
RANDOM_WIDTHS = "penstock.benchmarks.random_widths:random_widths"


def random_widths(snapshot: Snapshot) -> Plan:
    """Waiting trials in a random order, all trials at random widths. Equal questions draw alike."""
    rng = random.Random(repr(snapshot.at))
    courses = {}

    def other(trial: Candidate, than: int) -> int:
        widths = range(1, 1 + max(1, min(trial.widest, snapshot.devices)))
        return rng.choice([width for width in widths if width != than] or widths)

    # What runs gets another width: at the one that it has it would go on to the end of its segment,
    # which may be long. Devices are kept for it, and for the first in line, as long as others run:
    # their ends lead to another plan. Else a trial that waits begins with what is free.
    order = rng.sample(snapshot.waiting, len(snapshot.waiting))
    kept = [*snapshot.running, *(order[:1] if snapshot.running else ())]
    for each in kept:
        wide = other(each, each.width)
        courses[each.trial] = Course(narrow=wide, wide=wide, epochs=1)
    for each in order:
        courses.setdefault(each.trial, Course(narrow=1, wide=other(each, 1), epochs=1))
    widths = {trial: course.wide for trial, course in courses.items()}
    return Plan(tuple(each.trial for each in order), widths, patient=True, courses=courses)
