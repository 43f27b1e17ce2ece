"""Policies over the trials of all studies, on simulated devices."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.simulator import simulate
from penstock.extensions.simulation.workload import (
    SimulatedTraining,
    StudyWork,
    TrialWork,
    Workload,
    study_spec,
)
from penstock.profiling.devices.device import Device
from penstock.scheduler.policies import las, srtf
from penstock.scheduler.policies.names import POLICIES

FLAT = ((1, 1.0),)


def workload(*jobs: tuple[float, float, int], **more) -> Workload:
    """A study of one trial for each (arrival, seconds of an epoch, epochs)."""
    studies = tuple(
        StudyWork(
            study_spec(f"job {number}", 1, 1, number=number),
            (TrialWork(seconds, FLAT, epochs),),
            arrives,
            budgets=True,
        )
        for number, (arrives, seconds, epochs) in enumerate(jobs)
    )
    return Workload("by hand", studies, **{"overhead": 0.0} | more)


def ends(of: Workload, policy: str, devices: str = "gpu:1", *, known: bool = True) -> list[float]:
    """When each study ended (simulated seconds)."""
    [outcome] = run(of, simulated_devices(devices), [policy], known=known).outcomes
    found: defaultdict[str, float] = defaultdict(float)
    for row in outcome.epochs:
        found[row.trial.rpartition("-")[0]] = row.at
    return [found[study.spec.id] for study in of.studies]


# A long job, and two short ones that arrive in its first and in its third epoch of ten.
THREE = workload((0.0, 10.0, 10), (5.0, 10.0, 2), (25.0, 10.0, 3))


def test_fifo_goes_by_submission_and_nobody_gives_way():
    assert ends(THREE, "fifo") == pytest.approx([100.0, 120.0, 150.0], abs=0.5)


def test_under_srtf_a_longer_trial_gives_way_at_the_end_of_its_epoch():
    assert ends(THREE, "srtf") == pytest.approx([150.0, 30.0, 60.0], abs=0.5)


def test_srtf_learns_sizes_from_first_epochs():
    """Nothing is known of a job before its first epoch, so that goes first; then it is clear."""
    assert ends(THREE, "srtf", known=False) == pytest.approx([150.0, 30.0, 60.0], abs=0.5)


def test_las_lets_the_least_served_go_first_and_changes_seldom():
    """Of 2 and 3 epochs none comes to the end of the lowest level, so they end like under srtf."""
    long = workload((0.0, 10.0, 40), (95.0, 10.0, 2), (100.0, 10.0, 3))
    assert ends(long, "las", known=False) == pytest.approx([450.0, 120.0, 150.0], abs=0.5)
    equal = workload((0.0, 10.0, 20), (0.0, 10.0, 20))
    [outcome] = run(equal, simulated_devices("gpu:1"), ["las"]).outcomes
    turns = [row.trial for row in sorted(outcome.epochs, key=lambda row: row.at)]
    changes = sum(a != b for a, b in pairwise(turns))
    assert 3 <= changes <= 6, "levels of 60, 120 and 240 s: no turn for each epoch"


def test_srtf_is_best_and_weighted_sharing_is_between():
    jobs = workload(*((7.0 * k, (8.0, 1.0, 3.0)[k % 3], 9) for k in range(12)))
    outcomes = run(jobs, simulated_devices("gpu:1"), ["fifo", "fair", "srtf"], known=True).outcomes
    mean = {each.policy: each.completion for each in outcomes}
    assert mean["srtf"] < mean["fair"] < mean["fifo"]
    assert mean["srtf"] < 0.75 * mean["fifo"]


def test_one_study_alone_runs_under_fifo_as_it_did_before_fifo_went_across_studies():
    trials = tuple(TrialWork(float(k % 5 + 1), FLAT, k % 4 + 1) for k in range(20))
    of = Workload("w", (StudyWork(study_spec("one", 20, 1), trials, budgets=True),))
    devices = [Device(f"d{k}", "n", "cuda", (k,), None) for k in range(3)]

    def epochs(*, across: bool):
        done = simulate(
            [of.studies[0].spec],
            devices,
            SimulatedTraining(of),
            policy="fifo",
            cross_study=across,
            strategies=of.strategy,
        )
        return [(row.trial, row.epoch, row.at, row.device) for row in done.epochs]

    assert epochs(across=True) == epochs(across=False)


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(
    st.sampled_from(["srtf", "las"]),
    st.lists(st.floats(4.0, 9.0), min_size=5, max_size=20),
    st.booleans(),
)
def test_nobody_waits_for_ever_behind_newcomers(policy, sizes, known):
    """A device that short jobs alone would keep busy, and a long one among them."""
    jobs, at = [(0.0, 20.0, 6)], 0.0
    while at < 3500.0:
        for size in sizes:
            jobs.append((at, size, 4))
            at += 3.8 * size
    of = workload(*jobs)
    size, patience = 120.0, 20.0
    end = ends(of, policy, known=known)[0]
    # It waits no longer than its patience, for what was starved before it, and an epoch at a time.
    assert end <= patience * max(size, las.QUANTUM) + 2 * size + 6 * 9.0


@pytest.mark.slow
def test_without_patience_the_long_one_would_end_last(monkeypatch):
    jobs = [(0.0, 20.0, 6), *((28.5 * k, 10.0, 3) for k in range(200))]
    guarded = ends(workload(*jobs), "srtf")
    monkeypatch.setattr(srtf, "PATIENCE", 1e9)
    unguarded = ends(workload(*jobs), "srtf")
    assert unguarded[0] == max(unguarded)
    assert guarded[0] < 0.6 * unguarded[0]


def test_one_device_studies_have_other_means_under_each_policy():
    """With weighted sharing above all policies, the means were once the same to a digit."""
    jobs = workload(*((20.0 * k, (12.0, 1.0, 4.0)[k % 3], 9) for k in range(30)))
    outcomes = run(jobs, simulated_devices("gpu:1"), sorted(POLICIES), known=True).outcomes
    mean = {each.policy: each.completion for each in outcomes}
    assert len({round(mean[name], 3) for name in ("fifo", "srtf", "las", "fair")}) == 4
    assert mean["longest_first"] == mean["waterfill"] == pytest.approx(mean["fair"])
    assert fmean((mean["fifo"], mean["fair"])) > 1.5 * mean["srtf"]
