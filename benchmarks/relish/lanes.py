"""Gain of new studies from seats in a lane: jobs of ``philly`` with epochs of about 60 s.

Simulated, on one device of 24 GiB, and compared with the same device with one slot. The number of a
job's epochs is such that an epoch takes nearly 60 s, so new jobs arrive in the middle of one. A
job's peak memory is as in ``packing``; a quarter of it is assumed to be persistent. Turns
are shared as a fluid, and a switch costs nothing; a benchmark of the trainer measures that cost.
"""

from __future__ import annotations

from random import Random
from statistics import fmean, median

from penstock.extensions.simulation.devices.device_memory import MemoryNeed
from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.outcome import ExperimentResult
from penstock.extensions.simulation.workload import StudyWork, TrialWork, Workload, study_spec

from .packing import MEMORY, drawn_peak
from .philly import philly_jobs

SEATS, EPOCH, PERSISTENT = 8, 60.0, 0.25
JOBS, LOADS, TOP = 60, (0.7, 0.9), 0.9
POLICIES = ("fifo", "srtf", "las", "fair", "pack")
DEVICES = {"one slot": "gpu:1", f"{SEATS} seats": f"gpu:1*1x{SEATS}"}


def seated_jobs(load: float, seed: int) -> Workload:
    """A study of one trial for each job."""
    rng = Random(f"penstock lanes {seed}")
    studies = []
    for number, job in enumerate(philly_jobs(JOBS, load, TOP, seed)):
        epochs, peak = max(1, round(job.seconds / EPOCH)), drawn_peak(rng)
        need = MemoryNeed(round(PERSISTENT * peak), round((1.0 - PERSISTENT) * peak))
        work = TrialWork(job.seconds / epochs, ((1, 1.0),), epochs, memory=need)
        spec = study_spec(f"job {number}", 1, 1, number=number)
        studies.append(StudyWork(spec, (work,), job.arrives, budgets=True))
    return Workload("philly, with memory", tuple(studies))


def start_delays(work: Workload, outcome: ExperimentResult) -> list[float]:
    """From each job's arrival to its first step (seconds)."""
    first = {row.trial: row.begin for row in outcome.epochs if row.epoch == 1}
    arrives = {study.spec.id: study.arrives for study in work.studies}
    return [begin - arrives[trial.rpartition("-")[0]] for trial, begin in first.items()]


def lane_case(load: float, seed: int) -> dict[tuple[str, str], dict[str, float]]:
    """The figures of one draw by policy and device."""
    work, found = seated_jobs(load, seed), {}
    for policy in POLICIES:
        for name, devices in DEVICES.items():
            simulated = simulated_devices(devices, MEMORY)
            outcome = run(work, simulated, [policy], known=True).outcomes[0]
            delays = start_delays(work, outcome)
            found[policy, name] = {
                "start_p50_s": median(delays),
                "start_s": fmean(delays),
                "waiting_s": outcome.delays.waiting,
                "completion_s": outcome.completion,
                "p95_s": outcome.ended.p95,
                "makespan_s": outcome.makespan,
                "out_of_memory": float(outcome.out_of_memory),
            }
    return found


def lane_figures(seeds: int) -> dict[str, float]:
    """Means over ``seeds`` draws, which are printed."""
    figures = {}
    for load in LOADS:
        cases = [lane_case(load, seed) for seed in range(seeds)]
        print(f"{JOBS} jobs with epochs of {EPOCH:g} s, {MEMORY:g} GiB, load {load:g}")
        names = list(next(iter(cases[0].values())))
        print(f"{'':18}" + "".join(f"{name:>15}" for name in names))
        for row in cases[0]:
            means = {name: fmean(case[row][name] for case in cases) for name in names}
            print(f"{', '.join(row):18}" + "".join(f"{each:15.1f}" for each in means.values()))
            key = f"seats.load{load}.{row[0]}.{row[1].replace(' ', '_')}"
            figures |= {f"{key}.{name}": each for name, each in means.items()}
        print()
    return figures
