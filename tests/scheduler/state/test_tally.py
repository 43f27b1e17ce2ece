"""Counts of epochs: each event counts where it belongs, and a snapshot keeps the counts."""

from __future__ import annotations

import pytest
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.app.server.runner.reports import to_events
from penstock.base.errors import UsageError
from penstock.profiling.costs.outcomes import BOUNDS, Histogram
from penstock.scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    DeviceLeft,
    DevicesTakenOut,
    Replayed,
    StudyCancelled,
    Tick,
)
from worlds.drive_world import World, spec


@pytest.fixture
def world():
    world = World()
    world.submit(spec(n_trials=4))
    world.join("cpu.a.0", "cpu.a.1")
    yield world
    state = world.engine.state
    assert state_from_json(state_to_json(state)).tally == state.tally


def counted(world):
    return {name: n for name, n in world.engine.state.tally.epochs.items() if n}


def attempt(dispatch):
    return {"trial": dispatch.segment.trial, "fence": dispatch.segment.fence, "at": 1.0}


def test_accepted_epochs_are_counted_once_with_their_training(world):
    world.run()
    assert counted(world) == {"accepted": 12}
    assert world.engine.state.tally.trained == 6.0


def test_losses_count_however_they_came_to_be_known(world):
    first, second = world.open.values()
    world.send(AttemptLost(**attempt(first), reason="its lease ran out"))
    world.send(DeviceLeft(at=1.0, device=second.segment.members[0].device, reason="gone"))
    assert counted(world) == {"lost": 2}


def test_failures_repetitions_revocations_and_cancellations_are_told_apart(world):
    first, _ = world.open.values()
    world.send(Replayed(**attempt(first), first=1, last=3))
    world.send(AttemptFailed(**attempt(first), kind="exception", message="no"))
    assert counted(world) == {"repeated": 3, "failed": 1}
    world.send(DevicesTakenOut(at=1.0, devices=("cpu.a.1",), deadline=2.0))
    world.send(Tick(at=2.0))
    assert counted(world)["revoked"] == 1
    world.send(StudyCancelled(at=3.0, study="s-1"))
    assert counted(world)["cancelled"] == 1


def test_the_time_to_a_claim_is_what_the_worker_did_not_have(world):
    first, second = world.open.values()
    world.send(world.epoch(first, 1, at=5.0, claimed=4.7))
    world.send(world.epoch(second, 1, at=5.0))  # of an older worker
    tally = world.engine.state.tally
    assert tally.to_claim.total == pytest.approx(0.3)
    assert tally.to_accept.total == pytest.approx(4.7)
    assert sum(tally.to_claim.counts) == sum(tally.to_accept.counts) == 1


@pytest.mark.parametrize("claimed", [-1.0, float("nan"), float("inf"), "soon"])
def test_a_report_that_says_nonsense_of_its_claim_is_dropped(world, claimed):
    first, _ = world.open.values()
    body = {**attempt(first), "kind": "epoch", "epoch": 1, "metrics": {"v": 1.0}}
    body |= {"seconds": 0.5, "closes": False, "claimed": claimed}
    body |= {"state_hash": "h", "signature": "s"}
    with pytest.raises(UsageError, match="malformed report"):
        to_events(body, 1.0)
    del body["claimed"]
    assert to_events(body, 1.0)[0].claimed == 0.0


def test_a_histogram_is_cumulative_with_a_bucket_for_the_rest():
    histogram = Histogram()
    for seconds in (-1.0, 0.005, 0.006, 1e9):
        histogram.observe(seconds)
    found = dict(histogram.cumulative())
    assert (found["0.005"], found["0.01"], found["1800"], found["+Inf"]) == (2, 3, 3, 4)
    assert len(found) == len(BOUNDS) + 1
