"""PipeTune's claims, on real trainings measured once and tunings replayed on them.

    python -m benchmarks.pipetune --json FILE [--quick | --minutes N] [--replay MEASURED]

Measured for real: accuracy by epoch, and seconds a step under each system configuration, alone and
beside another trial. Simulated on that: tunings by Hyperband (R=9, eta=3) under every system, and
queues of tuning jobs (section 7.4). Then one tuning of each workload by V1, its best constant and
ours is run for real, beside its replay. What was measured is kept in FILE's ``.measured.json``,
which ``--replay`` reads instead of measuring anew and running for real.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from . import _pipetune_live as live
from . import _pipetune_replay as replays
from ._pipetune_measure import measure, neighbour
from ._pipetune_replay import MAX_EPOCHS, Measured, Outcome, best_constant, tunings
from ._pipetune_workloads import SHORT, WORKLOADS, absent, sampled
from ._results import Run, estimate

SYSTEMS = (
    "v1",
    "v1_our_default",
    "v1_packed",
    "v2",
    "pipetune",
    "random_reuse",
    "best_constant",
    "ours_exact",
    "ours",
    "ours_warm",
    "oracle",
)
SEEDS, JOBS = 5, 50
LOADS, UNSEEN = (0.5, 0.7, 0.9), (0, 20, 50, 100)
#: Configurations of a workload, examples, windows and their seconds: in full at ``MINUTES``, quick.
MINUTES = 30
FULL, QUICK = (12, 2000, 5, 0.15), (3, 300, 3, 0.02)
QUICK_WORKLOADS = ("lenet_mnist", SHORT)

Tunings = dict[str, list[dict[str, Outcome]]]


def trainings(quick: bool, minutes: float, kept: Path | None = None) -> dict[str, list[Measured]]:
    """Measure a pool of configurations of each workload that can be had here.

    What is measured is written to ``kept`` workload by workload, so that nothing is lost.
    """
    count, examples, windows, seconds = QUICK if quick else FULL
    count = count if quick else max(3, round(count * minutes / MINUTES))
    pools: dict[str, list[Measured]] = {}
    with neighbour() as beside:
        for name in QUICK_WORKLOADS if quick else WORKLOADS:
            if why := absent(name):
                print(f"{name}: skipped, its files are not here ({why})")
                continue
            pools[name] = [
                measure(name, params, MAX_EPOCHS, windows, seconds, beside)
                for params in sampled(name, count, examples)
            ]
            print(f"{name}: {count} configurations of {examples} examples measured", flush=True)
            if kept is not None:
                text = {each: [asdict(one) for one in pool] for each, pool in pools.items()}
                kept.write_text(json.dumps(text))
    return pools


def interval(values: Sequence[Sequence[float]]) -> list[float]:
    """Mean over workloads and seeds, and its 95 % interval: bootstrap over seeds.

    ``values`` are by workload, then by seed.
    """
    rows = np.array(values, dtype=float)
    chance = np.random.default_rng(0)
    picks = chance.integers(rows.shape[1], size=(2000, rows.shape[1]))
    means = rows[:, picks].mean(axis=(0, 2))
    return [float(rows.mean()), *(float(each) for each in np.quantile(means, (0.025, 0.975)))]


def compared(found: Tunings, names: Sequence[str], one: str, other: str) -> list[float]:
    """Tuning time of one system over another's, paired."""
    return interval(
        [[s[one].tuning_time / s[other].tuning_time for s in found[name]] for name in names]
    )


def verdict(found: Tunings) -> dict[str, Any]:
    """The figures with goals, each a mean and its interval, over all but the short epochs."""
    figures: dict[str, Any] = {}
    if names := [name for name in found if name != SHORT]:
        seeds = [s for name in names for s in found[name]]
        won = [
            (s["best_constant"].tuning_time - s["ours"].tuning_time)
            / (s["best_constant"].tuning_time - s["oracle"].tuning_time)
            for s in seeds
            if s["best_constant"].tuning_time > 1.001 * s["oracle"].tuning_time
        ]
        figures = {
            "ours_vs_v1.tuning_time": compared(found, names, "ours", "v1"),
            "ours_vs_v1.accuracy_points": interval(
                [[100 * (s["ours"].accuracy - s["v1"].accuracy) for s in found[n]] for n in names]
            ),
            "ours_exact_vs_v1.tuning_time": compared(found, names, "ours_exact", "v1"),
            "ours_vs_best_constant": compared(found, names, "ours", "best_constant"),
            "gap": compared(found, names, "best_constant", "oracle"),
            "gap_won": interval([won]) if won else None,
            "ours_vs_oracle": compared(found, names, "ours_warm", "oracle"),
            "studies_until_known": interval(
                [[float(s["ours_warm"].studies_before) for s in found[n]] for n in names]
            ),
            "pipetune_vs_v1.tuning_time": compared(found, names, "pipetune", "v1"),
            "pipetune_vs_best_constant": compared(found, names, "pipetune", "best_constant"),
            "probe_share": interval(
                [[s["ours"].probed / s["ours"].core_seconds for s in found[n]] for n in names]
            ),
        }
    if SHORT in found:
        figures["short_epochs_vs_v1"] = compared(found, [SHORT], "ours", "v1")
    return figures


def responses(arrivals: Sequence[float], service: Sequence[float]) -> list[float]:
    """Seconds from each job's arrival to its end, first come first served, one at a time."""
    free, found = 0.0, []
    for at, seconds in zip(arrivals, service, strict=True):
        free = max(free, at) + seconds
        found.append(free - at)
    return found


def multi_tenant(found: Tunings) -> dict[str, float]:
    """Responses of ``JOBS`` jobs by load and share of unseen ones, in percent; means over seeds.

    A job is a tuning of a workload with the whole machine to itself. An unseen one pays for its
    races, a seen one runs with what they came to. Arrivals are the same for all systems, at the
    load that they would be with V1.
    """
    names = list(found)
    mean = fmean(s["v1"].tuning_time for name in names for s in found[name])
    figures: dict[str, float] = {}
    for load in LOADS:
        for unseen in UNSEEN:
            all_of: dict[str, list[list[float]]] = {"v1": [], "v2": [], "ours": []}
            for seed in range(SEEDS):
                chance = np.random.default_rng([seed, round(10 * load)])
                arrivals = np.cumsum(chance.exponential(mean / load, JOBS)).tolist()
                jobs = [
                    (found[names[number % len(names)]][int(chance.integers(SEEDS))], new)
                    for number, new in enumerate(chance.random(JOBS) < unseen / 100)
                ]
                for system, of in all_of.items():
                    service = [
                        job["ours_warm" if system == "ours" and not new else system].tuning_time
                        for job, new in jobs
                    ]
                    of.append(responses(arrivals, service))
            for system, of in all_of.items():
                key = f"multi_tenant.{load}.{unseen}.{system}"
                figures[f"{key}.mean"] = float(np.mean(of))
                for part in (50, 95):
                    figures[f"{key}.p{part}"] = float(np.percentile(of, part, axis=1).mean())
    return figures


def live_beside_replayed(
    pools: dict[str, list[Measured]], found: Tunings, seed: int
) -> dict[str, float]:
    """Tunings that were run for real, and what their replays of the same ``seed`` say of them."""
    constants = replays.constants()
    # Threads are not turned in what is run for real: a trial has the threads of its cores.
    names = {
        name: best_constant(seeds, [key for key in constants if "threads" not in key])
        for name, seeds in found.items()
    }
    fixed = {name: live.constant(constants[key]) for name, key in names.items()}
    systems = {
        "v1": dict.fromkeys(found, live.V1),
        "best_constant": fixed,
        "ours": dict.fromkeys(found, live.OURS),
    }
    drawn = {
        name: [each.params for each in replays.draw(pool, seed)] for name, pool in pools.items()
    }
    figures: dict[str, float] = {}
    print(f"\nrun for real beside its replay, seed {seed}\n{'':16}{'':16}", end="")
    print(f"{'tuning s':>10}{'replayed':>10}{'ratio':>7}{'accuracy':>10}{'replayed':>10}")
    for system, how in systems.items():
        for name, real in live.tunings(drawn, how).items():
            key = names[name] if system == "best_constant" else system
            told = found[name][seed][key]
            print(
                f"{name:16}{system:16}{real.tuning_time:10.2f}{told.tuning_time:10.2f}"
                f"{real.tuning_time / told.tuning_time:7.2f}"
                f"{real.accuracy:10.3f}{told.accuracy:10.3f}",
                flush=True,
            )
            at = f"live.{name}.{system}"
            figures |= {f"{at}.{k}": v for k, v in asdict(real).items() if k != "probed"}
            figures[f"{at}.over_replayed"] = real.tuning_time / told.tuning_time
    for name in found:
        for system in ("v1", "best_constant"):
            ratio = (
                figures[f"live.{name}.ours.tuning_time"]
                / figures[f"live.{name}.{system}.tuning_time"]
            )
            figures[f"live.{name}.ours_vs_{system}"] = ratio
            print(f"{name:16}ours by {system}: {ratio:.3f}")
    return figures


def table(found: Tunings) -> None:
    """A row for each system on each workload: means over seeds."""
    head = f"{'':16}{'accuracy':>20}{'training s':>12}{'tuning s':>10}{'core s':>10}  energy"
    for name, seeds in found.items():
        best = best_constant(seeds, replays.constants())
        print(f"\n{name}, simulated on measured trainings; best {best}\n{head}")
        for system in SYSTEMS:
            of = [seed[system] for seed in seeds]
            mean, low, high = interval([[each.accuracy for each in of]])
            accuracy = f"{mean:.3f} ({low:.3f}-{high:.3f})"
            times = (
                fmean(getattr(each, key) for each in of)
                for key in ("training_time", "tuning_time", "core_seconds")
            )
            row = f"{system:16}{accuracy:>20}{'{:12.2f}{:10.2f}{:10.2f}'.format(*times)}"
            print(f"{row}  not measured")


def main() -> None:
    """Measure, replay, print the tables, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="two workloads, few configurations")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="about how long to measure")
    parser.add_argument("--replay", type=Path, help="what an earlier run measured")
    options = parser.parse_args()
    this_run = Run("pipetune", baseline="PipeTune's V1, its best constant")
    load, began = os.getloadavg()[0], time.monotonic()
    if options.replay:
        kept = json.loads(options.replay.read_text())
        pools = {name: [Measured(**each) for each in pool] for name, pool in kept.items()}
    else:
        file = options.json and options.json.with_suffix(".measured.json")
        pools = trainings(options.quick, options.minutes, file)
    found: Tunings = {}
    for name, pool in pools.items():
        found[name] = [tunings(pool, seed) for seed in range(SEEDS)]
        best = best_constant(found[name], replays.constants())
        for seed in found[name]:
            seed["best_constant"] = seed[best]
    table(found)
    figures: dict[str, Any] = verdict(found)
    print(f"\n{'':32}{'mean':>8}  95 % over seeds")
    for key, value in figures.items():
        print(f"{key:32}{'{:8.3f}  {:.3f} to {:.3f}'.format(*value) if value else 'no gap'}")
    figures = {key: estimate(*value) for key, value in figures.items() if value}
    figures |= multi_tenant(found)
    for load_of in LOADS:
        for system in ("v1", "v2", "ours"):
            key = f"multi_tenant.{load_of}.20.{system}"
            print(
                key, *(f"{part} {figures[f'{key}.{part}']:.1f}" for part in ("mean", "p50", "p95"))
            )
    for name, pool in pools.items():
        figures[f"{name}.side_by_side_stretch"] = replays.stretch_of(pool)
        for seed, of in enumerate(found[name]):
            for system in SYSTEMS:
                figures |= {f"{name}.{system}.{seed}.{k}": v for k, v in asdict(of[system]).items()}
    if not options.replay:
        figures |= live_beside_replayed(pools, found, seed=0)
    figures |= {
        "energy": "not measured",
        "seconds": time.monotonic() - began,
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }
    print(f"load {load:.1f} before, {figures['load_after']:.1f} after; {figures['seconds']:.0f} s")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
