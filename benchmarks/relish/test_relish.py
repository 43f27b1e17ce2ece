"""The ideal schedules of benchmarks.relish by hand, and compared with every other order."""

from __future__ import annotations

import math
import time
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.relish.figures import Setting, simulated
from benchmarks.relish.ideal_queue import RULES, ideal_ends, mean_completion
from benchmarks.relish.live import JOBS as JOBS_LIVE
from benchmarks.relish.live import LIVE_MEAN, LOAD, STEPS, Timed, live_jobs
from benchmarks.relish.philly import MEAN, QUANTILES, philly_jobs

pytestmark = pytest.mark.extension("nas", "sharing", "simulation")

JOBS = [(0.0, 10.0), (1.0, 2.0), (1.0, 1.0), (20.0, 4.0)]
ANY = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("rule", "ends"),
    [
        ("fifo", [10.0, 12.0, 13.0, 24.0]),
        ("sjf", [10.0, 13.0, 11.0, 24.0]),
        ("srtf", [13.0, 4.0, 2.0, 24.0]),
    ],
)
def test_ideal_schedules_are_those_worked_out_by_hand(rule, ends):
    assert ideal_ends(JOBS, rule) == ends


@given(ANY)
def test_no_order_without_interruption_is_better_than_ideal_srtf(jobs):
    """Every order in which the device may serve the jobs one after another, idle time included."""
    best = math.inf
    for order in permutations(range(len(jobs))):
        now = total = 0.0
        for number in order:
            now = max(now, jobs[number][0]) + jobs[number][1]
            total += now - jobs[number][0]
        best = min(best, total / len(jobs))
    assert mean_completion(jobs, "srtf") <= best + 1e-9
    assert min(mean_completion(jobs, rule) for rule in RULES) == pytest.approx(
        mean_completion(jobs, "srtf")
    )


@given(ANY, st.sampled_from(sorted(RULES)))
def test_the_device_is_never_idle_while_a_job_waits(jobs, rule):
    ends = ideal_ends(jobs, rule)
    busy = now = 0.0
    for arrives, seconds in sorted(jobs):
        now = max(now, arrives) + seconds
        busy += seconds
    assert max(ends) == now
    assert all(end >= arrives + seconds for end, (arrives, seconds) in zip(ends, jobs, strict=True))


def test_jobs_have_the_mean_the_spread_and_the_load_that_are_said():
    jobs = philly_jobs(4000, load=0.9, top=0.9, seed=1)
    times = sorted(job.seconds for job in jobs)
    assert math.fsum(times) / len(times) == pytest.approx(MEAN)
    # The median of the draw between the 10th and the 90th percentile is Philly's median.
    scale = times[0] / QUANTILES[0][1]
    assert times[2000] / scale == pytest.approx(QUANTILES[2][1], rel=0.15)
    assert times[-1] / scale <= QUANTILES[4][1] * 1.01
    assert MEAN * len(jobs) / jobs[-1].arrives == pytest.approx(0.9, rel=0.2)
    arrivals = [job.arrives for job in jobs]
    assert arrivals == sorted(arrivals)
    assert len(set(arrivals)) == pytest.approx(4000 / 8.2, rel=0.2)


def test_live_jobs_are_the_simulated_ones_on_a_shorter_scale():
    for seed in range(3):
        drawn, live = philly_jobs(JOBS_LIVE, LOAD, 0.90, seed), live_jobs(seed)
        assert math.fsum(job.seconds for job in live) / JOBS_LIVE == pytest.approx(LIVE_MEAN)
        factors = {round(a.seconds / b.seconds, 9) for a, b in zip(live, drawn, strict=True)}
        factors |= {
            round(a.arrives / b.arrives, 9) for a, b in zip(live, drawn, strict=True) if b.arrives
        }
        assert len(factors) == 1


def test_a_live_step_takes_its_time_and_learns_what_a_short_one_learns():
    results = []
    for seconds in (0.0, 0.08 * STEPS):
        torch.manual_seed(1)
        code = Timed({"seconds": seconds})
        model = code.model()
        began = time.perf_counter()
        code.loss(model, [part[:32] for part in code.data().train.tensors]).backward()
        took = time.perf_counter() - began
        results.append([parameter.grad for parameter in model.parameters()])
        assert took >= seconds / STEPS
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_ours_is_near_the_ideal_and_never_better():
    jobs = philly_jobs(30, load=0.9, top=0.9, seed=3)
    for policy in ("fifo", "srtf"):
        ratio = mean_completion(jobs, policy) / simulated(jobs, Setting(policy)).completion
        assert 0.9 < ratio <= 1.0
