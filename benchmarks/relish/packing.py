"""Gain from `pack`, by memory: jobs of ``philly`` on one simulated device of 24 GiB.

A job's peak memory follows quantiles of Lucid's table of single jobs (Hu et al., ASPLOS 2023):
2055, 3001 and 8281 MiB at the 10th, 50th and 90th percentile, the logarithm interpolated between.
Sharing gains nothing (two trials take twice as long), or two and more together have 1.48 times the
speed of one, as Lucid's pairs of the most demanding class have. A job's memory is known in advance,
as by a profile.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from random import Random
from statistics import fmean

from penstock.extensions.simulation.devices.device_memory import MemoryNeed
from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.outcome import ExperimentResult
from penstock.extensions.simulation.workload import StudyWork, TrialWork, Workload, study_spec

from .philly import philly_jobs

#: (part of the jobs, bytes).
PEAKS = ((0.1, 2055 * 2**20), (0.5, 3001 * 2**20), (0.9, 8281 * 2**20))
MEMORY, SLOTS = 24.0, 4
#: Total speed of two and more trials on the device, over that of one.
SPEEDS = (1.0, 1.48)
JOBS, EPOCHS, LOAD, TOP = 60, 27, 0.9, 0.9
#: name: (policy, slots of the device)
ROWS = {
    "fifo, one at a time": ("fifo", 1),
    "fifo, shared where it gains": ("fifo", SLOTS),
    "pack": ("pack", SLOTS),
}


def _peak(part: float) -> int:
    """The peak memory (bytes) that ``part`` of the jobs do not exceed."""
    index = min(bisect_right([each for each, _ in PEAKS], part), len(PEAKS) - 1)
    (low, least), (high, most) = PEAKS[index - 1], PEAKS[index]
    return round(least * (most / least) ** ((part - low) / (high - low)))


def drawn_peak(rng: Random) -> int:
    """The peak memory (bytes) of a job."""
    return _peak(rng.uniform(PEAKS[0][0], PEAKS[-1][0]))


def packed_jobs(speed: float, seed: int) -> Workload:
    """A study of one trial for each job, with what it needs of memory."""
    rng = Random(f"penstock memory {seed}")
    studies = tuple(
        StudyWork(
            study_spec(f"job {number}", 1, 1, number=number),
            (
                TrialWork(
                    job.seconds / EPOCHS,
                    ((1, 1.0),),
                    EPOCHS,
                    memory=MemoryNeed(persistent=drawn_peak(rng)),
                ),
            ),
            job.arrives,
            budgets=True,
        )
        for number, job in enumerate(philly_jobs(JOBS, LOAD, TOP, seed))
    )
    sharing = tuple(count / speed for count in range(2, SLOTS + 1))
    return replace(Workload("philly, with memory", studies), sharing=sharing)


def packing_case(speed: float, seed: int) -> dict[str, ExperimentResult]:
    """The outcome of each of ``ROWS``."""
    work = packed_jobs(speed, seed)
    return {
        name: run(work, simulated_devices(f"gpu:1*{slots}", MEMORY), [policy], known=True).outcomes[
            0
        ]
        for name, (policy, slots) in ROWS.items()
    }


def packing_figures(seeds: int) -> dict[str, float]:
    """Means over ``seeds`` draws, which are printed."""
    figures = {}
    for speed in SPEEDS:
        cases = [packing_case(speed, seed) for seed in range(seeds)]
        print(
            f"{JOBS} jobs, {MEMORY:g} GiB, load {LOAD:g}; together {speed:g} times the speed of one"
        )
        print(
            f"{'':30}{'start':>9}{'waiting':>9}{'completion':>12}{'p95':>9}{'memory':>8}{'out':>5}"
        )
        for name in ROWS:
            rows = [case[name] for case in cases]
            found = {
                "start_s": fmean(row.delays.start for row in rows),
                "waiting_s": fmean(row.delays.waiting for row in rows),
                "completion_s": fmean(row.completion for row in rows),
                "p95_s": fmean(row.ended.p95 for row in rows),
                "memory": fmean(row.memory or 0.0 for row in rows),
                "out_of_memory": sum(row.out_of_memory for row in rows),
            }
            start, waiting, completion, p95, memory, out = found.values()
            print(
                f"{name:30}{start:9.0f}{waiting:9.0f}{completion:12.0f}{p95:9.0f}{memory:8.0%}{out:5.0f}"
            )
            key = name.replace(", ", ".").replace(" ", "_")
            figures |= {f"memory.speed{speed}.{key}.{each}": v for each, v in found.items()}
        print()
    return figures
