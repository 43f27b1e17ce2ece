"""Policies over all trials on one device: simulated against ideal schedules, and live ones.

    python -m benchmarks.relish --json FILE [--quick] [--part simulated|live]

Simulated, with the real engine: 100 jobs have running times by quantiles of Philly, scaled to a
mean of 182 s, and arrive in bursts like Venus's (``philly``). Each is a study of one trial with 27
epochs. The ideal schedules come from an event simulation that shares nothing with the engine
(``ideal_queue``): it knows all times, switches for free and at any instant.

``srtf.of_ideal`` is ideal SRTF's mean completion time over ours, the lowest of all loads (means of
the seeds); ``fifo.of_ideal`` is the same of FIFO, the farthest from 1. FIFO's mean completion over
SRTF's depends on the load and on the spread of sizes, so it is a curve. Salus (Yu, Chowdhury,
MLSys 2020) reports 3.19, for a workload and a device of its own: it is shown, and no goal. Then
follow the gains from packing by memory (``packing``), and from seats in a lane where other
trials have long epochs (``lanes``).

Live: 12 such jobs of 6 s on average run for real (``live``). ``live.jct_over_simulated`` is
their mean completion time over the simulated one of the same table of seconds under the same
policy, which knows no times in either: the larger of FIFO's and SRTF's, each over all draws.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.outcome import ExperimentResult
from penstock.extensions.simulation.workload import StudyWork, TrialWork, Workload, study_spec

from testkit.results import Run

from .ideal_queue import RULES, mean_completion
from .lanes import lane_figures
from .live import EPOCHS as LIVE_EPOCHS
from .live import POLICIES as LIVE_POLICIES
from .live import live_jobs, live_run
from .packing import packing_figures
from .philly import MEAN, QueueJob, philly_jobs

JOBS, SEEDS, EPOCHS, FEW_EPOCHS = 100, 10, 27, 9
LOADS = (0.5, 0.7, 0.9, 1.1, 1.3)
#: The last quantile that is drawn.
TOPS = (0.90, 0.95)
#: FIFO's mean completion over SRTF's, as published.
SALUS = 3.19


class Setting(NamedTuple):
    """A policy, whether it knows all times, and how many epochs a job has."""

    policy: str
    known: bool = True
    epochs: int = EPOCHS


#: Settings compared at every load, and those compared only up to the first of ``TOPS``.
ALWAYS = {"fifo": Setting("fifo"), "srtf": Setting("srtf")}
MORE = {
    "srtf, learned": Setting("srtf", known=False),
    "srtf, 9 epochs": Setting("srtf", epochs=FEW_EPOCHS),
    "las": Setting("las", known=False),
    "fair": Setting("fair", known=False),
    "waterfill": Setting("waterfill", known=False),
}


class Case(NamedTuple):
    """A draw of jobs."""

    top: float
    load: float
    seed: int


def workload(jobs: list[QueueJob], epochs: int) -> Workload:
    """A study of one trial for each job."""
    studies = tuple(
        StudyWork(
            study_spec(f"job {number}", 1, 1, number=number),
            (TrialWork(job.seconds / epochs, ((1, 1.0),), epochs),),
            job.arrives,
            budgets=True,
        )
        for number, job in enumerate(jobs)
    )
    return Workload("philly", studies)


def simulated(jobs: list[QueueJob], of: Setting) -> ExperimentResult:
    """The outcome under a setting, on one device."""
    work = workload(jobs, of.epochs)
    return run(work, simulated_devices("gpu:1"), [of.policy], known=of.known).outcomes[0]


def one(case: Case) -> dict[str, float]:
    """Mean completion times of a draw (seconds): ours by setting, and the ideal ones."""
    jobs = philly_jobs(JOBS, case.load, case.top, case.seed)
    found = {f"ideal {rule}": mean_completion(jobs, rule) for rule in RULES}
    for name, setting in (ALWAYS | (MORE if case.top == TOPS[0] else {})).items():
        outcome = simulated(jobs, setting)
        found[name] = outcome.completion
        found[f"{name} p95"] = outcome.ended.p95
        found[f"{name} start"] = outcome.delays.start
        found[f"{name} slowdown"] = outcome.ended.slowdown
    return found


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    """FIFO over each setting, and the ideal over ours, as means of the draws' ratios."""
    found = {}
    for name in rows[0]:
        if name.endswith((" p95", " start", " slowdown")):
            found[name] = fmean(row[name] for row in rows)
            continue
        found[f"gain {name}"] = fmean(row["ideal fifo"] / row[name] for row in rows)
        if (rule := name.partition(",")[0]) in RULES:
            ratios = [row[f"ideal {rule}"] / row[name] for row in rows]
            found[f"of_ideal {name}"] = fmean(ratios)
            found[f"lowest {name}"] = min(ratios)
    return found


def live_figures(draws: int) -> dict[str, float]:
    """Print live jobs compared with the simulation of them, and return the figures."""
    figures: dict[str, float] = {"live.draws": draws}
    live: dict[str, list[float]] = {name: [] for name in LIVE_POLICIES}
    told: dict[str, list[float]] = {name: [] for name in LIVE_POLICIES}
    for seed in range(draws):
        jobs = live_jobs(seed)
        for name in LIVE_POLICIES[:: 1 if seed % 2 == 0 else -1]:
            setting = Setting(name, known=False, epochs=LIVE_EPOCHS)
            told[name].append(simulated(jobs, setting).completion)
            load = os.getloadavg()[0]
            found = live_run(jobs, name)
            live[name].append(found.completion)
            print(
                f"{len(jobs)} live jobs, draw {seed}, {name}: mean completion"
                f" {found.completion:.2f} s, simulated {told[name][-1]:.2f} s; trained"
                f" {found.trained:.3f} of the table (load {load:.1f})",
                flush=True,
            )
    for name in LIVE_POLICIES:
        figures[f"live.{name}.completion_s"] = fmean(live[name])
        figures[f"live.{name}.simulated_s"] = fmean(told[name])
        figures[f"live.{name}.jct_over_simulated"] = fmean(live[name]) / fmean(told[name])
        figures[f"live.{name}.worst"] = max(
            a / b for a, b in zip(live[name], told[name], strict=True)
        )
    ratios = [figures[f"live.{name}.jct_over_simulated"] for name in LIVE_POLICIES]
    figures["live.jct_over_simulated"] = max(ratios)
    print(f"live.jct_over_simulated {max(ratios):.3f} (goal: at most 1.10)\n")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="2 seeds and 2 loads, 1 live draw")
    parser.add_argument("--part", choices=("simulated", "live"), help="both by default")
    given = parser.parse_args()
    this_run = Run("relish", baseline="FIFO; ideal schedules with known times")
    began, load_before = time.perf_counter(), os.getloadavg()[0]
    print(f"load before {load_before:.1f}")
    figures: dict[str, float | bool] = {"load_before": load_before}
    if given.part != "simulated":
        figures |= live_figures(1 if given.quick else 3)
    if given.part != "live":
        figures |= simulated_figures(quick=given.quick)
    figures |= {"seconds": time.perf_counter() - began, "load_after": os.getloadavg()[0]}
    print(f"load after {figures['load_after']:.1f}")
    this_run.write(given.json, figures)


def simulated_figures(*, quick: bool) -> dict[str, float | bool]:
    """Print our policies compared with the ideal ones, and return the figures."""
    loads, seeds = ((0.7, 1.1), 2) if quick else (LOADS, SEEDS)
    began = time.perf_counter()
    cases = [Case(top, load, seed) for top in TOPS for load in loads for seed in range(seeds)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = dict(zip(cases, pool.map(one, cases), strict=True))
    cells = {
        (top, load): _means([rows[Case(top, load, seed)] for seed in range(seeds)])
        for top in TOPS
        for load in loads
    }
    print(
        f"{len(cases)} draws of {JOBS} jobs, mean {MEAN:g} s, one device, simulated, in"
        f" {time.perf_counter() - began:.0f} s\n"
    )
    figures: dict[str, float | bool] = {
        "simulated": True,
        "seeds": seeds,
        "jobs": JOBS,
        "salus.published": SALUS,
    }
    for name in ALWAYS:
        ratios = [cell[f"of_ideal {name}"] for cell in cells.values()]
        figures[f"{name}.of_ideal"] = max(ratios, key=lambda each: abs(each - 1.0))
        figures[f"{name}.of_ideal.mean"] = fmean(ratios)
    print(f"srtf.of_ideal {figures['srtf.of_ideal']:.3f} (goal: at least 0.95)")
    print(f"fifo.of_ideal {figures['fifo.of_ideal']:.3f} (goal: within 0.02 of 1)\n")
    for top in TOPS:
        _print_curve(top, {load: cells[top, load] for load in loads})
        for load in loads:
            for name, value in cells[top, load].items():
                figures[f"p{100 * top:.0f}.load{load}.{_key(name)}"] = value
    _print_losses(rows, loads, seeds)
    return figures | packing_figures(seeds) | lane_figures(seeds)


def _key(name: str) -> str:
    """``gain srtf, learned`` as ``srtf.learned.gain``."""
    kind, _, rest = name.partition(" ")
    words = f"{rest}.{kind}" if kind in ("gain", "of_ideal", "lowest") else name
    return words.replace(", ", ".").replace(" ", ".")


def _print_curve(top: float, cells: dict[float, dict[str, float]]) -> None:
    """FIFO's mean completion over each, by load."""
    print(
        f"running times up to the {100 * top:.0f}th percentile: ideal FIFO's mean completion over"
    )
    print(f"{'':24}" + "".join(f"{f'load {load:g}':>11}" for load in cells))
    for name in next(iter(cells.values())):
        if name.startswith("gain "):
            values = "".join(f"{cell[name]:11.2f}" for cell in cells.values())
            print(f"{name.removeprefix('gain '):24}{values}")
    print(f"{'(Salus, as published)':24}" + f"{SALUS:11.2f}" * len(cells))
    for name in next(iter(cells.values())):
        if name.startswith("of_ideal "):
            ours = name.removeprefix("of_ideal ")
            values = "".join(f"{cell[name]:11.3f}" for cell in cells.values())
            print(f"{'ideal over ' + ours:24}{values}")
    print()


def _print_losses(rows: dict[Case, dict[str, float]], loads: tuple[float, ...], seeds: int) -> None:
    """The cases in which ours is behind: the ideal, or FIFO."""
    print("where we lose:")
    for load in loads:
        draws = [rows[Case(TOPS[0], load, seed)] for seed in range(seeds)]
        for name in ("srtf", "srtf, learned", "srtf, 9 epochs"):
            lost = [row["ideal srtf"] / row[name] for row in draws]
            if (behind := sum(each < 0.95 for each in lost)) > 0:
                print(
                    f"  load {load:g}: {name} is more than 5 % behind ideal SRTF in {behind} of"
                    f" {seeds} draws, at worst {1 - min(lost):.0%}"
                )
        for name in ("las", "fair", "waterfill"):
            worse = sum(row[name] > row["fifo"] for row in draws)
            if worse:
                print(f"  load {load:g}: {name} is behind fifo in {worse} of {seeds} draws")
        for name in ("srtf", "las"):
            longer = [row[f"{name} p95"] / row["fifo p95"] for row in draws]
            if (many := sum(each > 1.0 for each in longer)) > 0:
                print(
                    f"  load {load:g}: the p95 of completion is longer under {name} than under fifo"
                    f" in {many} of {seeds} draws, at worst {max(longer):.2f} times"
                )
    print()


if __name__ == "__main__":
    main()
