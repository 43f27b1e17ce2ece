"""Simulated lanes: residents share the time, and memory holds one step at a time."""

from __future__ import annotations

import pytest
from penstock.base.errors import UsageError
from penstock.extensions.simulation.devices.device_memory import GIB, MemoryNeed
from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.gantt import spans
from penstock.extensions.simulation.waits import waits
from penstock.extensions.simulation.workload import StudyWork, TrialWork, Workload, study_spec
from penstock.profiling.costs.group_slowdown import GroupSlowdown
from penstock.scheduler.policies.srtf import PATIENCE, SHORTEST

pytestmark = pytest.mark.extension("lanes")

NEAR = 0.05


def job(number, seconds, arrives=0.0, epochs=1, memory=(0.0, 0.0)):
    need = MemoryNeed(*(round(each * GIB) for each in memory))
    work = TrialWork(seconds / epochs, ((1, 1.0),), epochs, memory=need)
    return StudyWork(study_spec(f"j{number}", 1, 1, number=number), (work,), arrives, budgets=True)


def simulated(devices, policy, *jobs, memory=None, **more):
    workload = Workload("jobs", jobs, **more)
    found = run(workload, simulated_devices(devices, memory), [policy], known=True)
    return found, found.outcomes[0]


def ends(outcome):
    last = {row.trial.partition("-")[0]: row.at for row in outcome.epochs}
    return [round(last[name], 1) for name in sorted(last)]


LONG, SHORT = job(0, 60.0), job(1, 10.0, arrives=30.0)


@pytest.mark.parametrize(
    ("devices", "policy", "expected", "start"),
    [
        ("gpu:1", "fair", [60.0, 70.0], 15.0),
        ("gpu:1*1x2", "fair", [70.0, 50.0], 0.0),
        ("gpu:1", "srtf", [60.0, 70.0], 15.0),
        ("gpu:1*1x2", "srtf", [70.0, 40.0], 0.0),
        ("gpu:1*1x2", "fifo", [60.0, 70.0], 15.0),
        ("gpu:1*1x2", "pack", [70.0, 50.0], 0.0),
    ],
)
def test_a_newcomer_beside_a_long_epoch(devices, policy, expected, start):
    simulation, outcome = simulated(devices, policy, LONG, SHORT)
    assert ends(outcome) == pytest.approx(expected, abs=NEAR)
    assert outcome.delays.start == pytest.approx(start, abs=NEAR)
    assert outcome.utilisation == pytest.approx(1.0, abs=1e-3)
    waited = sum(each.end - each.begin for each in waits(simulation, outcome))
    assert waited == pytest.approx(2 * outcome.delays.waiting, abs=NEAR)


def test_turns_go_by_the_weights_of_studies_at_work():
    jobs = [job(0, 30.0), job(1, 30.0), job(2, 30.0)]
    _, outcome = simulated("gpu:1*1x4", "fair", *jobs)
    assert ends(outcome) == pytest.approx([90.0] * 3, abs=NEAR)
    assert [row.seconds for row in outcome.epochs] == pytest.approx([30.0] * 3, abs=NEAR)


def test_an_epoch_that_gave_way_is_drawn_around_the_one_that_came_between():
    simulation, outcome = simulated("gpu:1*1x2", "srtf", LONG, SHORT)
    held = sorted(spans(outcome.epochs, simulation.devices), key=lambda each: each[3])
    assert [(trial[:2], *times) for trial, _, _, *times in held] == [
        ("s0", pytest.approx(0.0, abs=NEAR), pytest.approx(30.0, abs=NEAR)),
        ("s1", pytest.approx(30.0, abs=NEAR), pytest.approx(40.0, abs=NEAR)),
        ("s0", pytest.approx(40.0, abs=NEAR), pytest.approx(70.0, abs=NEAR)),
    ]


def test_who_has_no_turns_is_not_starved():
    """Short jobs keep coming; the long one has turns once it has waited for its patience."""
    short = [job(n, 30.0, arrives=30.0 * n) for n in range(1, 101)]
    _, outcome = simulated("gpu:1*1x4", "srtf", job(0, 70.0), *short)
    [end] = [row.at for row in outcome.epochs if row.trial.startswith("s0-")]
    waited = end - 70.0
    assert PATIENCE * SHORTEST <= waited + NEAR <= PATIENCE * SHORTEST + 2 * 30.0


def test_lanes_slow_each_other_down_and_seats_do_not():
    """Two lanes of two: each lane's residents take turns, and both lanes run at 1 / 1.5."""
    jobs = [job(number, 30.0) for number in range(4)]
    _, outcome = simulated("gpu:1*2x2", "pack", *jobs, sharing=(1.5,))
    assert ends(outcome) == pytest.approx([90.0] * 4, abs=NEAR)
    assert [row.seconds for row in outcome.epochs] == pytest.approx([45.0] * 4, abs=NEAR)


@pytest.mark.extension("memory")
def test_memory_holds_one_step_at_a_time():
    jobs = [job(n, 60.0, arrives=float(n), epochs=6, memory=(1.0, 4.0)) for n in range(4)]
    _, lane = simulated("gpu:1*1x4", "pack", *jobs, memory=10.0)
    _, slots = simulated("gpu:1*4", "pack", *jobs, memory=10.0)
    assert lane.out_of_memory == slots.out_of_memory == 0
    assert lane.delays.start < 0.1, "4 x 1 + 4 of 8.5"
    assert slots.delays.start > 10.0, "5 + 5 of 8.5"


@pytest.mark.extension("memory")
def test_who_does_not_fit_into_the_lane_waits():
    jobs = [job(0, 60.0, epochs=6, memory=(2.0, 5.0)), job(1, 10.0, 5.0, memory=(4.0, 1.0))]
    _, outcome = simulated("gpu:1*1x4", "fair", *jobs, memory=10.0)
    assert outcome.out_of_memory == 0
    assert outcome.delays.start > 1.0


@pytest.mark.parametrize("spec", ["gpu:1*2x", "gpu:1*1x65", "gpu:1*0x2"])
def test_a_malformed_number_of_lanes_or_seats_is_refused(spec):
    with pytest.raises(UsageError, match=r"lanes|slots"):
        simulated_devices(spec)


def alike(trials, epochs=4, seconds=10.0, together=None, width=1):
    """A study of equal trials, which are trained together where ``together`` says how fast."""
    group_slowdown = GroupSlowdown(together or {})
    spec = study_spec("alike", trials, width, fuses=bool(together))
    work = TrialWork(seconds, ((1, 1.0), (2, 0.6))[:width], epochs)
    return StudyWork(spec, (work,) * trials, budgets=True, group_slowdown=group_slowdown)


@pytest.mark.extension("fusion")
def test_trials_that_are_trained_together_fill_the_seats_and_take_their_part_of_the_time():
    _, outcome = simulated("gpu:1*1x4", "fifo", alike(4, together={4: 0.4}))
    assert ends(outcome) == pytest.approx([4 * 4 * 10.0 * 0.4], abs=NEAR)
    assert [row.seconds for row in outcome.epochs] == pytest.approx([4.0] * 16, abs=NEAR)
    assert outcome.utilisation == pytest.approx(1.0, abs=1e-2)
    assert outcome.makespan >= outcome.bound
    _, alone = simulated("gpu:1*1x4", "fifo", alike(4))
    assert ends(alone) == pytest.approx([160.0], abs=2 * NEAR), "without it seats are for who waits"


@pytest.mark.extension("fusion")
def test_fewer_trials_together_gain_less():
    _, outcome = simulated("gpu:2*1x4", "fifo", alike(4, together={4: 0.4}))
    two = 0.4 + (1.0 - 0.4) / 3  # linear in 1/n between 1 and 4 trials
    assert ends(outcome) == pytest.approx([2 * 4 * 10.0 * two], abs=NEAR)


@pytest.mark.parametrize("known", [True, False])
def test_waterfill_is_wide_late_and_fused_early(known):
    """With many trials a device is worth more fused than as a second one of a wide trial."""
    work = Workload("jobs", (alike(8, epochs=6, together={4: 0.4}, width=2),))
    [outcome] = run(work, simulated_devices("gpu:2*1x4", None), ["waterfill"], known=known).outcomes
    assert all(len(row.members) == 1 for row in outcome.epochs if row.at < 60.0)
    last = Workload("job", (alike(1, epochs=6, together={4: 0.4}, width=2),))
    [outcome] = run(last, simulated_devices("gpu:2*1x4", None), ["waterfill"], known=True).outcomes
    assert {len(row.members) for row in outcome.epochs} == {2}
