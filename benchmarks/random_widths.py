"""A policy of one's own that places trials as badly as it can: at other widths all the time.

    PENSTOCK_POLICY=penstock.benchmarks.random_widths:random_widths

Results must not depend on where trials run, so tests and benchmarks of exactness run under it. Each
plan draws, for each trial, on how many devices it trains its next epoch, and on how many it then
goes on until the next plan. The end of that epoch is what asks for a plan.
"""

from __future__ import annotations

import random

from penstock.scheduler.model.snapshot import Candidate, Course, Plan, Snapshot

#: What ``PENSTOCK_POLICY`` says. The scheduler imports it where ``benchmarks`` is no package.
RANDOM_WIDTHS = "penstock.benchmarks.random_widths:random_widths"


def random_widths(snapshot: Snapshot) -> Plan:
    """Waiting trials in a random order, all trials at random widths. Equal questions draw alike."""
    rng = random.Random(repr(snapshot.at))

    def course(trial: Candidate, *, without: int) -> Course:
        widths = range(1, 1 + max(1, min(trial.widest, snapshot.devices)))
        others = [width for width in widths if width != without] or widths
        return Course(narrow=rng.choice(widths), wide=rng.choice(others), epochs=1)

    # At the width that it has, a trial would go on to the end of its segment, which may be long.
    courses = {each.trial: course(each, without=each.width) for each in snapshot.running}
    order = rng.sample(snapshot.waiting, len(snapshot.waiting))
    for place, each in enumerate(order):
        drawn = course(each, without=0)
        # Devices are kept for the first in line, as long as others' ends lead to another plan.
        keeps = place == 0 and snapshot.running
        courses[each.trial] = drawn._replace(narrow=drawn.wide if keeps else 1)
    widths = {trial: drawn.wide for trial, drawn in courses.items()}
    return Plan(tuple(each.trial for each in order), widths, patient=True, courses=courses)
