"""Every strategy under every policy: studies end, devices do not idle, results are equal."""

from __future__ import annotations

import itertools

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.spec.space import parse_space
from penstock.extensions.simulation.simulator import simulate
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import EpochReported, StudySubmitted
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.policies.names import POLICIES
from penstock.scheduler.resources.slots import devices_are_reserved_for, free_slots
from penstock.scheduler.strategies.base import STRATEGIES
from worlds.drive_world import spec

from testkit.random_widths import RANDOM_WIDTHS

#: A user's own is among them, which is asked in a process of its own.
PLANS = (*POLICIES, RANDOM_WIDTHS)
WIDTHS = (1, 2, 4)
DEVICES = (1, 3, 4)
#: Strategies whose results do not depend on the order in which epochs end.
ORDER_FREE = ("full", "halving")


def rows() -> list[tuple[str, str, int, int]]:
    """Every pair of two of the four factors is in one of them at least.

    All strategies times all policies; width and number of devices go round in such a way that each
    value meets each strategy and each policy, and each other.
    """
    return [
        (strategy, policy, WIDTHS[(s + p) % 3], DEVICES[(s + 2 * p + (s + p) // 3) % 3])
        for (s, strategy), (p, policy) in itertools.product(enumerate(STRATEGIES), enumerate(PLANS))
    ]


def test_all_pairs_are_covered():
    factors = (STRATEGIES, PLANS, WIDTHS, DEVICES)
    for a, b in itertools.combinations(range(4), 2):
        seen = {(row[a], row[b]) for row in rows()}
        assert seen == set(itertools.product(factors[a], factors[b]))


class Work:
    """Unequal epochs, less than evenly shared by devices; scores by trial and epoch alone."""

    def epoch(self, dispatch, spec, epoch):
        width = len(dispatch.segment.members)
        number = dispatch.number
        score = ((number * 7) % 5) / 5 + epoch / 100
        return (1.0 + (number * 5) % 7) / width**0.8, score

    def resize(self, dispatch, spec):
        return 0.3

    def steps(self, dispatch, spec):
        return 200

    def slowdown(self, at_work):
        return 1.0


def study(strategy: str, width: int):
    plan = StrategySpec(strategy, max_epochs=9, min_epochs=3 if strategy == "pbt" else 1)
    return spec(
        plan,
        n_trials=9,
        sampler="random",
        space=parse_space({"x": [1, 2, 3, 4, 5, 6, 7, 8, 9]}),
        max_width=width,
        shards=width,
    )


def run(strategy: str, policy: str, width: int, devices: int):
    places = [Device(f"d{k}", "n", "cpu", (k,), None) for k in range(devices)]
    return simulate([study(strategy, width)], places, Work(), policy=policy, longest=1e6)


def results(done) -> dict[tuple[str, int], float]:
    reports = [event for event in done.trace if isinstance(event, EpochReported)]
    return {(event.trial, event.epoch): dict(event.metrics)["v"] for event in reports}


@pytest.fixture(scope="module")
def expected():
    return {name: results(run(name, "fifo", 1, 1)) for name in ORDER_FREE}


@pytest.mark.parametrize(("strategy", "policy", "width", "devices"), rows())
def test_a_study_ends_without_a_device_idle_beside_ready_work(
    expected, strategy, policy, width, devices
):
    done = run(strategy, policy, width, devices)
    [status] = [s.status for s in done.engine.take_changes().studies.values()] or ["complete"]
    assert status == "complete"
    if strategy in expected:
        assert results(done) == expected[strategy]
    # The run once more, event by event. No device is free while a trial waits, except while the
    # next plan is due, and for devices that the plan keeps for the first in line
    # (``start, patient``), which then needs more of them than are free.
    again, idle, kept = Engine(plugs=PLUGS), 0.0, 0.0
    for event, following in itertools.pairwise(done.trace):
        again.handle(event)
        state = again.state
        if isinstance(event, StudySubmitted) or not state.ready:
            continue
        free = len(free_slots(state, again.extensions))
        # One whose course has begun wide waits for as many devices as its course says.
        least = min(
            state.courses[name].narrow if name in state.courses else 1 for name in state.ready
        )
        first = state.trials[state.ready[0]]
        if free and devices_are_reserved_for(state, first):
            assert free < state.courses[first.id].narrow
            kept += free * (following.at - event.at)
        elif free >= least:
            assert state.dirty, f"{free} devices are idle after {event}"
            idle += free * (following.at - event.at)
    assert idle <= 0.01 * devices * done.makespan
    # Random widths are as bad a plan as can be.
    assert kept <= 0.02 * devices * done.makespan or policy == RANDOM_WIDTHS
