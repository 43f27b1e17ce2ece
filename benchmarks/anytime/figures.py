"""The figures of ``benchmarks.anytime``: areas under the logarithm of regret, and their ratios.

*Regret* of a table is how far the best value so far, of any epoch of any trial, is below the best
value known, over how far the median configuration is below it after its first epoch: 1 is where a
random search begins, and more counts as 1. It does not count below ``FLOOR``. Before the first
epoch has ended it is 1.

The *area* is the mean over the time of the budget of ``log10(regret / FLOOR)``: decades above the
floor, from 3 down to 0. So it is above zero, and ratios of areas have a meaning. Time is linear: a
second of waiting counts the same whenever it is. On a logarithmic axis the figure would depend on
an instant chosen as its first, and the first minutes would weigh as much as all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from statistics import fmean, geometric_mean, median
from typing import Any

#: The regret below which nothing counts.
FLOOR = 1e-3
#: The regret of ``epochs_to_1pct``.
NEAR = 0.01

#: (seconds, number of the epoch, value) where a study's best value so far rises.
Path = Sequence[tuple[float, int, float]]


def path_of(steps: Iterable[tuple[float, float]]) -> list[tuple[float, int, float]]:
    """Return where the best value of ``steps``, (seconds, value) of each epoch in order, rises.

    It is rounded to milliseconds and five decimals, to be kept.

    >>> path_of([(1.0, 0.5), (2.0, 0.4), (3.0, 0.7)])
    [(1.0, 1, 0.5), (3.0, 3, 0.7)]
    """
    path: list[tuple[float, int, float]] = []
    for number, (at, value) in enumerate(steps, start=1):
        if not path or value > path[-1][2]:
            path.append((round(at, 3), number, round(value, 5)))
    return path


@dataclass(frozen=True)
class Ran:
    """One study on a table."""

    path: Path
    #: Number of epochs that ended within its budget.
    epochs: int
    #: Real seconds of the tuner's decisions, which are in the times of ``path``.
    decided: float
    #: Simulated seconds that it had.
    budget: float


@dataclass(frozen=True)
class Scale:
    """The values of a table between which regret is measured."""

    best: float
    #: Of the median configuration after its first epoch.
    start: float

    def regret(self, value: float) -> float:
        """Return the regret of a best value so far, from ``FLOOR`` to 1."""
        return min(1.0, max(FLOOR, (self.best - value) / (self.best - self.start)))

    def area(self, ran: Ran) -> float:
        """Return the mean over time of the decades of regret above the floor, from 0 to 3.

        >>> Scale(best=1.0, start=0.0).area(Ran([(4.0, 1, 0.9), (8.0, 2, 1.0)], 2, 0.0, 10.0))
        2.0
        """
        total, last, height = 0.0, 0.0, -log10(FLOOR)
        for at, _, value in ran.path:
            now = min(at, ran.budget)
            total += height * (now - last)
            last, height = now, log10(self.regret(value) / FLOOR)
        return (total + height * (ran.budget - last)) / ran.budget

    def epochs_to(self, ran: Ran) -> int | None:
        """Return the number of the first epoch whose regret is ``NEAR`` or less; None: no epoch."""
        return next((n for _, n, value in ran.path if self.regret(value) <= NEAR), None)


#: Studies by table, side, number of devices and seed.
Rows = Mapping[tuple[str, str, int, int], Ran]
#: By table and number of devices: the values of a side, one a table or one a seed.
_Cells = dict[tuple[str, int], dict[str, float]]


def figures_of(rows: Rows, scales: Mapping[str, Scale], ours: Sequence[str]) -> dict[str, Any]:
    """Return the figures of all tables in ``scales``, which have the same studies each.

    ``scales`` has the best value of random configurations; that of a table becomes the best that
    any side found. ``ours`` names our sides, the one that counts first; all others are peers.
    """
    scales = {
        table: Scale(max([scale.best, *_bests(rows, table)]), scale.start)
        for table, scale in scales.items()
    }
    sides = sorted({side for _, side, _, _ in rows})
    mine, peers = [side for side in ours if side in sides], [s for s in sides if s not in ours]
    areas, epochs = _areas(rows, scales), _epochs(rows, scales)
    devices = sorted({count for _, count in areas})
    figures: dict[str, Any] = {"tables": len(scales)}
    figures |= _means(rows, scales, areas, sides, devices)
    for first in mine:
        found: dict[str, Any] = {}
        for count in devices:
            for peer in peers:
                found[f"ratio.{peer}.{count}"] = geometric_mean(
                    [areas[table, count][first] / areas[table, count][peer] for table in scales]
                )
            if first != "asha" and "asha" in mine:
                found[f"epochs_to_1pct.{count}"] = geometric_mean(
                    [epochs[table, count][first] / epochs[table, count]["asha"] for table in scales]
                )
        if peers:
            found |= _over_best(areas, scales, devices, first, peers)
        figures |= {f"{first}.{name}": value for name, value in found.items()}
        if first == mine[0]:
            figures |= found
    return figures


def _bests(rows: Rows, table: str) -> list[float]:
    """Return the best values of the studies of ``table``."""
    return [ran.path[-1][2] for key, ran in rows.items() if key[0] == table and ran.path]


def _areas(rows: Rows, scales: Mapping[str, Scale]) -> _Cells:
    """Return the mean area over all seeds; even a regret at the floor at once counts a little."""
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for (table, side, devices, _), ran in rows.items():
        if table in scales:
            of = found.setdefault((table, devices), {})
            of.setdefault(side, []).append(max(FLOOR, scales[table].area(ran)))
    return {key: {side: fmean(each) for side, each in of.items()} for key, of in found.items()}


def _epochs(rows: Rows, scales: Mapping[str, Scale]) -> _Cells:
    """Return the median over seeds of the epochs to 1 %; all epochs where it is never reached."""
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for (table, side, devices, _), ran in rows.items():
        if table in scales:
            needed = scales[table].epochs_to(ran) or max(1, ran.epochs)
            found.setdefault((table, devices), {}).setdefault(side, []).append(needed)
    return {key: {side: median(each) for side, each in of.items()} for key, of in found.items()}


def _means(
    rows: Rows,
    scales: Mapping[str, Scale],
    areas: _Cells,
    sides: Sequence[str],
    devices: Sequence[int],
) -> dict[str, float]:
    """Return of each side at each number of devices its means over tables and seeds."""
    figures = {}
    for side in sides:
        for count in devices:
            here = [(k[0], ran) for k, ran in rows.items() if k[1:3] == (side, count)]
            where = f"{side}.{count}"
            figures |= {
                f"area.{where}": fmean(areas[table, count][side] for table in scales),
                f"epochs.{where}": fmean(ran.epochs for _, ran in here),
                f"decided_s.{where}": fmean(ran.decided for _, ran in here),
                f"reached_1pct.{where}": fmean(
                    scales[table].epochs_to(ran) is not None for table, ran in here
                ),
            }
    return figures


def _over_best(
    areas: _Cells,
    scales: Mapping[str, Scale],
    devices: Sequence[int],
    first: str,
    peers: Sequence[str],
) -> dict[str, float]:
    """Return our area over that of the table's best peer, where that is largest by devices."""
    figures = {}
    for table in scales:
        figures[f"over_best.{table}"] = max(
            areas[table, count][first] / min(areas[table, count][peer] for peer in peers)
            for count in devices
        )
    return figures | {"over_best.max": max(figures.values())}
