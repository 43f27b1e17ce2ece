"""The same engine and runner under simulated time."""

import hashlib
import json

import pytest
from penstock.app.common.clock import SimulatedClock
from penstock.app.common.ports import Effects
from penstock.base.errors import BackendError
from penstock.extensions.simulation.devices.transport import SimulatedTransport
from penstock.extensions.simulation.simulator import simulate
from penstock.scheduler.model.decisions import Dispatch, Member, Segment
from penstock.scheduler.model.events import EpochReported, TrialReturned
from penstock.scheduler.model.study import StrategySpec
from worlds.drive_world import device, spec


class Curve:
    """A made-up learning curve and cost, a function of trial number and epoch alone."""

    def slowdown(self, at_work):
        return 1.0

    def resize(self, dispatch, spec):
        return 0.0

    def steps(self, dispatch, spec):
        return 200

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


def test_simulated_epochs_draw_energy_and_devices_cost_money():
    full = study(strategy=StrategySpec("full", max_epochs=2), sampler="random", n_trials=3)
    run = simulate(
        [full], [device()], Curve(), watts=lambda trial, epoch: 10.0 * epoch, prices={"cpu": 2.0}
    )
    assert all(row.joules == pytest.approx(10.0 * row.epoch * row.seconds) for row in run.epochs)
    assert run.engine.state.prices == {"cpu": 2.0}
    assert all(row.joules is None for row in simulate([full], [device()], Curve()).epochs)


class Crowded(Curve):
    """Epochs that take longer where trials share a device."""

    def __init__(self, *slowdowns):
        self.slowdowns = slowdowns

    def slowdown(self, at_work):
        return self.slowdowns[at_work - 1]


@pytest.mark.extension("memory")
def test_simulated_trials_slow_each_other_down_and_share_where_it_pays():
    full = study(strategy=StrategySpec("full", max_epochs=20), sampler="random", n_trials=8)
    one, two = [device(slots=1)], [device(slots=2)]
    alone = simulate([full], one, Curve()).makespan
    gains = simulate([full], two, Crowded(1.0, 1.25))
    hurts = simulate([full], two, Crowded(1.0, 2.2))
    # 1.6 times the total speed, but for what is spent alone before it is known.
    assert alone / 1.6 < gains.makespan < alone / 1.4
    assert alone < hurts.makespan < 1.05 * alone
    taken = [event.seconds for event in gains.trace if isinstance(event, EpochReported)]
    assert len(taken) == 8 * 20


def test_an_epoch_in_which_another_trial_joins_takes_a_part_at_each_speed():
    """A second alone, then one at half the speed: 1.5 s of work. The other: 1 s each way."""
    transport = SimulatedTransport(SimulatedClock(), [device(slots=2)], Crowded(1.0, 2.0), 0.0)
    first, second = (
        Dispatch(
            id=f"{n}", cause=0, study="s", number=n, params=(), shards=1, parents=(), expect="",
            holder="", final=True, segment=Segment(f"t{n}", 1, 1, n + 1, (Member("cpu.a.0", n),)),
        )
        for n in range(2)
    )  # fmt: skip
    transport.work.epoch = lambda *_: (1.5, 0.0)
    transport.carry_out(Effects(dispatches=[(first, study())]))
    assert not transport.receive(1.0)
    transport.carry_out(Effects(dispatches=[(second, study())]))
    [message] = transport.receive(10.0)
    assert transport.clock.now() == pytest.approx(2.0)
    assert message.body["seconds"] == pytest.approx(2.0)
    [message] = transport.receive(10.0)
    assert transport.clock.now() == pytest.approx(2.0 + 1.0)
    assert message.body["seconds"] == pytest.approx(2.0)
