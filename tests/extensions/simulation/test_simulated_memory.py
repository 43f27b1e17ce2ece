"""Memory of simulated devices: who fits, who runs out of it, and what policies make of that."""

from __future__ import annotations

import pytest
from penstock.base.errors import UsageError
from penstock.extensions.simulation.devices.device_memory import GIB, DeviceMemory, MemoryNeed
from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.simulator import simulate
from penstock.extensions.simulation.workload import (
    SimulatedTraining,
    StudyWork,
    TrialWork,
    Workload,
    study_spec,
)
from penstock.extensions.simulation.workload_file import read_workload
from penstock.scheduler.model.decisions import Member
from penstock.scheduler.model.events import AttemptFailed, EpochReported

FLAT = ((1, 1.0),)


def need(persistent: float, ephemeral: float) -> MemoryNeed:
    return MemoryNeed(round(persistent * GIB), round(ephemeral * GIB))


def study(*needs: MemoryNeed, number: int = 0, epochs: int = 20, arrives: float = 0.0) -> StudyWork:
    trials = tuple(TrialWork(10.0, FLAT, epochs, memory=each) for each in needs)
    spec = study_spec(f"w{number}", len(trials), 1, number=number)
    return StudyWork(spec, trials, arrives, budgets=True)


def workload(*studies: StudyWork, sharing: float = 1.2) -> Workload:
    return Workload("by hand", studies, overhead=0.0, sharing=(sharing,))


def most_at_once(outcome) -> int:
    """Return the largest number of trials that a device held at one time."""
    return max(
        sum(
            row.device == at.device and row.at - row.seconds < at.at - 1e-6 <= row.at
            for row in outcome.epochs
        )
        for at in outcome.epochs
    )


def test_a_device_takes_what_fits_and_gets_it_back():
    [device] = simulated_devices("gpu:1", 10.0)
    memory = DeviceMemory([device])
    slot = [Member(device.name, 0)]
    assert memory.claim(1, slot, MemoryNeed(6 * GIB)) == ""
    assert memory.claim(2, slot, MemoryNeed(5 * GIB)) == device.name
    assert memory.free(device.name) == 4 * GIB
    memory.release(1)
    assert memory.claim(2, slot, MemoryNeed(5 * GIB)) == ""


@pytest.mark.extension("lanes")
def test_the_residents_of_a_lane_need_one_step_at_a_time():
    [device] = simulated_devices("gpu:1*2x2", 10.0)
    memory = DeviceMemory([device])
    need = MemoryNeed(2 * GIB, 3 * GIB)
    assert memory.claim(1, [Member(device.name, 0)], need) == ""
    assert memory.claim(2, [Member(device.name, 1)], need) == "", "2 + 2 + 3"
    assert memory.free(device.name) == 3 * GIB
    assert memory.claim(3, [Member(device.name, 2)], need) == device.name, "another lane"
    memory.release(2)
    assert memory.claim(3, [Member(device.name, 2)], need) == ""


def test_a_gang_that_finds_one_device_full_takes_nothing_of_the_others():
    one, two = simulated_devices("gpu:2", 10.0)
    memory = DeviceMemory([one, two])
    memory.claim(1, [Member(two.name, 0)], MemoryNeed(6 * GIB))
    both = [Member(one.name, 0), Member(two.name, 0)]
    assert memory.claim(2, both, MemoryNeed(5 * GIB)) == two.name
    assert memory.free(one.name) == 10 * GIB


def test_members_of_a_gang_divide_the_ephemeral_bytes():
    assert MemoryNeed(3, 8).peak() == 11
    assert MemoryNeed(3, 8).peak(4) == 5
    assert MemoryNeed(3, 9).peak(4) == 6


@pytest.mark.extension("memory")
def test_a_larger_trial_than_any_before_runs_out_of_memory_and_goes_on_alone():
    """Two of 4 GiB fit into 10; the study's third needs 8, and nobody could know."""
    of = workload(study(need(1, 3), need(1, 3), need(2, 6), epochs=30))
    [outcome] = run(of, simulated_devices("gpu:1*2", 10.0), ["fair"]).outcomes
    assert outcome.out_of_memory == 1
    assert len(outcome.epochs) == 90, "all are trained to their ends"
    assert most_at_once(outcome) == 2
    big = [row for row in outcome.epochs if row.trial.endswith("2")]
    spans = [(row.at - row.seconds, row.at) for row in outcome.epochs if row not in big]
    assert not any(
        begin < row.at - 1e-6 and row.at - row.seconds + 1e-6 < end
        for row in big
        for begin, end in spans
    )


def test_without_a_stated_memory_nobody_runs_out():
    of = workload(study(need(1, 3), need(1, 3), need(20, 60), epochs=30))
    [outcome] = run(of, simulated_devices("gpu:1*2"), ["longest_first"]).outcomes
    assert (outcome.out_of_memory, outcome.memory) == (0, None)


@pytest.mark.extension("memory")
def test_the_engine_hears_of_it_as_in_a_real_run():
    of = workload(study(need(1, 3), need(1, 3), need(2, 6), epochs=30))
    done = simulate(
        [each.spec for each in of.studies],
        simulated_devices("gpu:1*2", 10.0),
        SimulatedTraining(of),
        strategies=of.strategy,
        overhead=0.0,
        needs=of.memory,
    )
    [failed] = [event for event in done.trace if isinstance(event, AttemptFailed)]
    assert failed.kind == "memory"
    assert (
        failed.message
        == f"8.00 GiB are needed on {simulated_devices('gpu:1')[0].name}, 6.00 are free"
    )
    reports = [event for event in done.trace if isinstance(event, EpochReported)]
    assert {event.memory for event in reports} == {4 * GIB, 8 * GIB}


def test_a_trial_that_is_too_large_for_every_device_is_refused_at_the_door():
    of = workload(study(need(5, 6)))
    with pytest.raises(UsageError, match=r"11 GiB, in w0.*at most 10 GiB"):
        run(of, simulated_devices("gpu:1", 10.0), ["fifo"])


@pytest.mark.parametrize("memory", [0.0, -1.0, float("nan"), 1e9])
def test_a_memory_out_of_range_is_refused(memory):
    with pytest.raises(UsageError, match=r"--memory"):
        simulated_devices("gpu:1", memory)


def jobs(*peaks: float, epochs: int = 20) -> list[StudyWork]:
    return [study(need(0.0, peak), number=k, epochs=epochs) for k, peak in enumerate(peaks)]


@pytest.mark.extension("memory")
def test_pack_fills_a_device_by_the_sum_of_what_its_trials_need():
    """4 + 3 + 1 GiB of 10 are within 85 %; a fourth of 2 GiB is not, and the last one of 0.4 is."""
    of = workload(*jobs(4.0, 3.0, 1.0, 2.0, 0.4), sharing=1.0)
    [outcome] = run(of, simulated_devices("gpu:1*4", 10.0), ["pack"], known=True).outcomes
    begun = {row.trial[:2]: row.at - row.seconds for row in outcome.epochs if row.epoch == 1}
    assert [name for name, at in begun.items() if at < 1.0] == ["s0", "s1", "s2", "s4"]
    assert outcome.out_of_memory == 0
    assert most_at_once(outcome) == 4


@pytest.mark.extension("memory")
def test_pack_waits_for_a_first_epoch_where_it_does_not_know_what_a_study_needs():
    of = workload(*jobs(4.0, 3.0))
    [outcome] = run(of, simulated_devices("gpu:1*4", 10.0), ["pack"]).outcomes
    assert most_at_once(outcome) == 1


@pytest.mark.extension("memory")
def test_a_trial_that_smaller_ones_pass_is_let_in_after_a_while():
    """Small ones keep coming, so that 9 GiB are never free by themselves."""
    small = [
        StudyWork(
            study_spec(f"small {k}", 1, 1, number=k + 1),
            (TrialWork(50.0, FLAT, 4, memory=need(0.0, 3.0)),),
            40.0 * k,
            budgets=True,
        )
        for k in range(60)
    ]
    of = workload(study(need(0.0, 8.0), number=0, arrives=5.0), *small, sharing=1.0)
    [outcome] = run(of, simulated_devices("gpu:1*4", 10.0), ["pack"], known=True).outcomes
    begun = next(row.at - row.seconds for row in outcome.epochs if row.trial.startswith("s0-"))
    assert 500.0 < begun < 1500.0
    assert outcome.makespan > 2400.0


@pytest.mark.extension("memory")
def test_pack_starts_earlier_than_fifo_and_shows_how_much_memory_is_used():
    of = workload(*jobs(*(1.0 + k % 3 for k in range(12))), sharing=1.5)
    devices = simulated_devices("gpu:1*4", 10.0)
    packed, fifo = run(of, devices, ["pack", "fifo"], known=True).outcomes
    assert packed.delays.start < 0.8 * fifo.delays.start
    assert packed.memory > fifo.memory > 0.0
    used = sum(
        row.seconds * of.trial(row.trial[:-5], row.trial).memory.peak() for row in fifo.epochs
    )
    assert fifo.memory == pytest.approx(used / (10 * GIB * fifo.makespan))


def test_a_file_says_what_trials_and_tuners_need(tmp_path):
    file = tmp_path / "w.yaml"
    file.write_text(
        "studies:\n"
        "  a:\n"
        "    trials:\n"
        "      - {epochs: 1, seconds: 5, memory: {persistent: 0.5, ephemeral: 2}}\n"
        "      - {epochs: 1, seconds: 5}\n"
        "  b:\n"
        "    tuner: {ASHA: {max_epochs: 9}}\n"
        "    n_trials: 3\n"
        "    seconds: 5\n"
        "    memory: {persistent: 1, ephemeral: 0}\n"
    )
    a, b = read_workload(file).studies
    assert [trial.memory for trial in a.trials] == [need(0.5, 2), MemoryNeed()]
    assert {trial.memory for trial in b.trials} == {need(1, 0)}


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ("{persistent: 1}", "ephemeral is missing"),
        ("{persistent: -1, ephemeral: 1}", "a number from 0 to 100000"),
        ("{persistent: 1, ephemeral: 1, peak: 2}", "peak"),
        ("7", "memory"),
    ],
)
def test_what_is_impossible_is_refused_with_its_key(tmp_path, memory, told):
    file = tmp_path / "w.yaml"
    file.write_text(f"studies: {{a: {{trials: [{{epochs: 1, seconds: 5, memory: {memory}}}]}}}}\n")
    with pytest.raises(UsageError, match=told):
        read_workload(file)
