"""The figures of ``placement_live`` from a study's epochs, worked out by hand."""

from __future__ import annotations

import pytest
from penstock.app.ledger.rows import EpochRow
from penstock.extensions.simulation.workload import study_spec
from penstock.scheduler.model.study import StrategySpec

from benchmarks.placement_live.figures import mismatches, spread
from benchmarks.placement_live.live import DEVICES, Costs, Ran, bound, costs, foretold

pytestmark = pytest.mark.extension("nas", "sharing", "simulation")


def spec(trials, strategy):
    return study_spec("live", trials, DEVICES, strategy=strategy)


def epoch(number, epoch, seconds, at, devices=("a",), state="same"):
    members = tuple((device, 0) for device in devices)
    row = EpochRow(
        rowid=0,
        trial=f"s-{number}",
        epoch=epoch,
        value=float(number),
        metrics={},
        state_hash=state,
        signature="",
        seconds=seconds,
        device=devices[0],
        slot=0,
        fence=0,
        at=at,
        members=members,
    )
    return number, row


#: Two trials of two epochs of one second side by side, one of which ends on both devices.
RAN = Ran(
    spec(2, StrategySpec("full", 2)),
    3.5,
    (
        epoch(0, 1, 1.0, 1.2, ("a",)),
        epoch(1, 1, 2.0, 2.2, ("b",)),
        epoch(0, 2, 1.0, 2.3, ("a",)),
        epoch(1, 2, 1.0, 3.5, ("a", "b")),
    ),
    windows=0,
)


def test_costs_are_levels_by_trial_and_gaps_by_kind():
    known = costs([RAN])
    assert known.level == {0: 1.0, 1: 2.0}
    assert known.shape == ((1, 1.0), (2, 0.5))
    assert known.values == {(0, 1): 0.0, (0, 2): 0.0, (1, 1): 1.0, (1, 2): 1.0}
    assert known.gaps["next"] == pytest.approx(0.1)
    assert known.gaps["resized"] == pytest.approx(0.2), "from when the later member was free"


def test_a_trial_that_was_only_wide_has_its_level_by_the_shape():
    wide = Ran(RAN.spec, 1.0, (*RAN.epochs, epoch(2, 1, 0.5, 4.0, ("a", "b"))), windows=0)
    assert costs([wide]).level[2] == 1.0


def test_the_bound_of_one_rung_and_of_two():
    free = {"first": 0.0, "resized": 0.0, "next": 0.0}
    known = Costs({0: 1.0, 1: 2.0}, ((1, 1.0), (2, 0.5)), {}, free)
    assert bound(RAN, known) == pytest.approx(3.0), "six device-seconds that can be split"
    narrow = Costs({0: 1.0, 1: 2.0}, ((1, 1.0), (2, 1.0)), {}, free)
    assert bound(RAN, narrow) == pytest.approx(4.0), "the longer one alone"
    halving = Ran(spec(2, StrategySpec("halving", 2, eta=2)), 0.0, RAN.epochs[:3], windows=0)
    assert bound(halving, narrow) == pytest.approx(2.0 + 1.0), "a rung of both, and one of one"


def test_the_simulation_takes_what_the_costs_say():
    free = {"first": 0.5, "resized": 0.0, "next": 0.004}
    narrow = Costs(
        {0: 1.0, 1: 2.0}, ((1, 1.0), (2, 1.0)), {(n, e): 0.0 for n in (0, 1) for e in (1, 2)}, free
    )
    assert foretold(RAN, narrow, "fifo") == pytest.approx(0.5 + 2 + 2, abs=0.05)


def test_a_state_that_differs_is_counted():
    other = Ran(RAN.spec, 1.0, (*RAN.epochs[:3], epoch(1, 2, 1.0, 3.5, state="other")), windows=0)
    short = Ran(RAN.spec, 1.0, RAN.epochs[:3], windows=0)
    assert mismatches([RAN, RAN]) == 0
    assert mismatches([RAN, other]) == 1
    assert mismatches([RAN, short]) == 1, "its last epoch is missing"


def test_spread_is_over_the_median():
    assert spread([2.0, 1.0, 4.0]) == 1.5
    assert spread([3.0]) == 0.0
