"""Waits of studies for each other in a simulation, and their reasons."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.timeline_page import render
from penstock.extensions.simulation.waits import MAX_LANES, waits, waits_chart
from penstock.extensions.simulation.workload import StudyWork, TrialWork, Workload, study_spec


def jobs(*of):
    """A study of one trial for each (arrival, epochs of 10 s)."""
    return Workload(
        "by hand",
        tuple(
            StudyWork(
                study_spec(f"job {number}", 1, 1, number=number),
                (TrialWork(10.0, ((1, 1.0),), epochs),),
                arrives,
                budgets=True,
            )
            for number, (arrives, epochs) in enumerate(of)
        ),
        overhead=0.0,
    )


def simulated(policy, *of, devices="gpu:1"):
    done = run(jobs(*of), simulated_devices(devices), [policy], known=True)
    return done, done.outcomes[0]


def told(policy, *of):
    done, outcome = simulated(policy, *of)
    return [
        (wait.trial[:2], wait.ahead[:2], round(wait.begin), round(wait.end), wait.why)
        for wait in sorted(waits(done, outcome))
    ]


def test_under_fifo_one_waits_for_who_came_first():
    assert told("fifo", (0.0, 3), (5.0, 1)) == [
        ("s1", "s0", 5, 10, "its epoch had begun"),
        ("s1", "s0", 10, 30, "it came first"),
    ]


def test_under_srtf_the_longer_one_waits_and_it_is_said_how_much_is_left_of_both():
    assert told("srtf", (0.0, 6), (5.0, 2)) == [
        ("s0", "s1", 10, 30, "it had 20.0 s left, against 50.0 s"),
        ("s1", "s0", 5, 10, "its epoch had begun"),
    ]


def test_under_shares_it_is_the_study_that_had_a_place():
    [(*_, why)] = told("fair", (0.0, 1), (0.0, 1))
    assert why == "its study had a share of the device"


def test_waiting_for_a_trial_is_what_is_between_the_epochs_of_the_other():
    done, outcome = simulated("srtf", *((7.0 * k, k % 5 + 1) for k in range(9)))
    found = waits(done, outcome)
    for trial in {row.trial for row in outcome.epochs}:
        spans = sorted((w.begin, w.end) for w in found if w.trial == trial)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))
    assert sum(w.end - w.begin for w in found) == pytest.approx(9 * outcome.delays.waiting, abs=1.0)


def test_the_page_shows_it_and_nothing_where_nobody_waited():
    done, outcome = simulated("srtf", (0.0, 6), (5.0, 2))
    page = render(done, datetime.now(UTC))
    assert "Who waited for whom" in page
    assert "job 0 waited 20.0 s for job 1: it had 20.0 s left, against 50.0 s" in page
    done, outcome = simulated("fifo", (0.0, 6), (100.0, 2))
    assert waits_chart(done, outcome, outcome.makespan) == ""


def test_a_chart_of_many_shows_those_that_waited_longest():
    done, outcome = simulated("fifo", *((0.0, 1) for _ in range(MAX_LANES + 20)))
    chart = waits_chart(done, outcome, outcome.makespan)
    assert chart.count('class="e"') == MAX_LANES
    assert f">job {MAX_LANES + 19}<" in chart
    assert ">job 3<" not in chart
