"""Placement that learns speed curves on the way, judged by workloads that it was not made on."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean

from ..lib.frozen import frozen_seed
from .judges import KINDS, POLICY, SIMPLE, Judge, judges, one

_NARROW = tuple(name for name, wide in SIMPLE if not wide)
_SIMPLE = tuple(f"{name}+wide" if wide else name for name, wide in SIMPLE)


def judge_figures(count: int, seed: str = "") -> dict[str, float]:
    """Figures of ``count`` instances, also printed. ``seed`` empty: that of the policy's commit."""
    drawn = seed or frozen_seed(POLICY)
    todo = list(judges(drawn, count))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(one, todo))
    flat = sum(not each.scales for each in todo) / count
    print(f"{count} judges of seed {drawn[:12]}, simulated; {flat:.0%} have no trial that scales")
    print(f"{'makespan over':40} {'mean':>7} {'p99':>7} {'max':>7}")
    figures: dict[str, float] = {"judges": count}
    best = [min(row[name] for name in _SIMPLE) for row in rows]
    narrow = [min(row[name] for name in _NARROW) for row in rows]
    columns = {
        "learned.over_best_simple": ("that of the best simple policy", "learned", best),
        "learned.over_best_narrow": ("the same, one device per trial", "learned", narrow),
        "learned.over_known": ("that with known curves", "learned", [r["known"] for r in rows]),
        "known.over_best_simple": ("the best simple one's, known curves", "known", best),
    }
    columns |= {f"learned.over_{n}": (n, "learned", [r[n] for r in rows]) for n in _SIMPLE}
    for key, (words, ours, theirs) in columns.items():
        ratios = [row[ours] / other for row, other in zip(rows, theirs, strict=True)]
        mean, p99, most = _kinds(ratios)
        figures |= {f"{key}.mean": mean, f"{key}.p99": p99, f"{key}.max": most}
        print(f"{words:40} {mean:7.3f} {p99:7.3f} {most:7.3f}")
    ratios = [row["learned"] / other for row, other in zip(rows, best, strict=True)]
    for kind in KINDS:
        mine = [r for r, each in zip(ratios, todo, strict=True) if each.kinds[0] == kind]
        print(f"  {kind:38} " + " ".join(f"{each:7.3f}" for each in _kinds(mine)))
    print("\nthe worst ten beside the best simple policy:")
    for at in sorted(range(count), key=lambda at: -ratios[at])[:10]:
        print(f"  {ratios[at]:.3f} {_about(todo[at], rows[at])}")
    return figures


def _kinds(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Mean, 99th percentile and maximum."""
    ordered = sorted(ratios)
    return fmean(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1], ordered[-1]


def _about(judge: Judge, row: dict[str, float]) -> str:
    seconds = ", ".join(f"{name} {value:.1f}" for name, value in row.items())
    return f"{judge.workload.name}: {judge.workload.about}\n    {seconds}"
