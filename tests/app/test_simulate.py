"""The same engine and runner under simulated time."""

import hashlib
import json

import pytest
from drive_world import device, spec
from penstock.app.simulate import simulate
from penstock.profiling.errors import BackendError
from penstock.scheduler.events import EpochReported, TrialReturned
from penstock.scheduler.study import StrategySpec


class Curve:
    """A made-up learning curve and cost, a function of trial number and epoch alone."""

    def stretch(self, at_work):
        return 1.0

    def resize(self, dispatch, spec):
        return 0.0

    def epoch(self, dispatch, spec, epoch):
        digest = hashlib.sha256(f"{dispatch.number}".encode()).digest()
        return 0.5 + digest[0] / 256, 1.0 - 1.0 / (epoch + digest[1] / 64)


UNIT = {"step": None, "low": 0.0, "high": 1.0, "log": False}
SPACE = (("x", json.dumps({"name": "FloatDistribution", "attributes": UNIT})),)


def study(**fields):
    plan = fields.pop("strategy", StrategySpec("asha", max_epochs=9))
    return spec(plan, **{"n_trials": 27, "space": SPACE, "sampler": "tpe", **fields})


def test_a_study_run_ten_times_gives_one_trace():
    devices = [device(f"cpu.a.{n}") for n in range(3)]
    traces = {simulate([study()], devices, Curve()).trace for _ in range(10)}
    assert len(traces) == 1
    [trace] = traces
    assert sum(isinstance(event, EpochReported) for event in trace) > 27


def test_another_seed_gives_another_trace():
    devices = [device()]
    one = simulate([study(seed=1)], devices, Curve()).trace
    two = simulate([study(seed=2)], devices, Curve()).trace
    assert one != two


def test_work_is_conserved_and_two_devices_are_faster():
    """A full budget costs the same epochs on one device and on two, in about half the time."""
    full = study(strategy=StrategySpec("full", max_epochs=4), sampler="random")
    alone = simulate([full], [device()], Curve())
    pair = simulate([full], [device(), device("cpu.a.1")], Curve())
    for run in (alone, pair):
        assert sum(isinstance(event, EpochReported) for event in run.trace) == 27 * 4
    assert 1.9 < alone.makespan / pair.makespan <= 2.01


def test_longest_first_ends_no_later_than_fifo_on_unequal_trials():
    full = study(strategy=StrategySpec("full", max_epochs=4), sampler="random", n_trials=7)
    devices = [device(f"cpu.a.{n}") for n in range(3)]
    # The first second measures; what it learns orders the rest.
    fifo = simulate([full], devices, Curve(), policy="fifo").makespan
    longest = simulate([full], devices, Curve(), policy="longest_first").makespan
    assert longest <= fifo * 1.05


def test_several_studies_share_the_devices_and_all_end():
    studies = [study(id=f"s-{n}", name=f"s{n}") for n in range(3)]
    run = simulate(studies, [device(slots=2)], Curve())
    assert set(run.engine.state.finished) == {"s-0", "s-1", "s-2"}
    assert not [e for e in run.trace if isinstance(e, TrialReturned)]


def test_a_run_without_a_device_is_told_to_be_endless():
    with pytest.raises(BackendError, match="not over"):
        simulate([study()], [], Curve(), longest=100.0)
