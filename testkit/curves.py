"""Speed curves as they were measured, read from files: seconds an epoch by width.

They are what ``profiling/costs/reference_curves.py`` was fitted to: the artifact of Sia (Jayaram
Subramanya et al., SOSP 2023). Those files have no licence and are not here: ``PENSTOCK_DATA`` names
the folder above ``speed-curves/``.

Such a folder has a folder an application, and in it for each cluster ``placements-CLUSTER.csv``
(and ``scalability-CLUSTER.csv``) with columns ``placement`` (devices a node, a digit a node) or
``num_nodes`` and ``num_replicas``, ``local_bsz`` (examples) and ``step_time`` (seconds). The first
epoch in ``validation-BATCH.csv`` says how many examples an epoch has: ``progress`` times the batch.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

from penstock.base.errors import UsageError
from penstock.profiling.costs.reference_curves import SpeedCurve
from penstock.profiling.costs.throughput import Allocation, Measured, packed_allocation

SOURCE = "https://github.com/siasosp23/artifacts, sia-simulator/traces"
#: Examples of an epoch where no file says it.
EXAMPLES = 50_000


@dataclass(frozen=True)
class Table:
    """As measured, and between two measured batches of a device on the line of the logarithms."""

    points: tuple[Measured, ...]
    per_node: int
    examples: int

    @cached_property
    def devices(self) -> int:
        """The most that were measured."""
        return max(point.place.width for point in self.points)

    @cached_property
    def local_batches(self) -> tuple[float, float]:
        """Smallest and largest measured, examples."""
        shares = [point.place.share for point in self.points]
        return min(shares), max(shares)

    def curve(self, batch: float, max_width: int) -> SpeedCurve:
        """As in ``Family``. Below the smallest measured batch of a device time stays as there."""
        found = []
        for width in range(1, int(min(max_width, self.devices, batch)) + 1):
            place = packed_allocation(width, self.per_node, batch)
            known = self._steps.get((place.nodes, width))
            alone = self._steps.get((1, 1))
            if known is None or alone is None:
                continue
            pieces = math.ceil(place.share / known[-1][0])
            share = place.share / pieces
            step = _between(known, share) + (pieces - 1) * _between(alone, share)
            found.append((width, step * self.examples / batch))
        return tuple(found)

    @cached_property
    def _steps(self) -> dict[tuple[int, int], list[tuple[float, float]]]:
        """(batch of a device, seconds a step) in order, by nodes and width."""
        times: dict[Allocation, list[float]] = {}
        for point in self.points:
            times.setdefault(point.place, []).append(point.seconds)
        steps: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for place, seconds in sorted(times.items(), key=lambda item: item[0].share):
            steps.setdefault((place.nodes, place.width), []).append((place.share, median(seconds)))
        return steps


def missing(folder: Path) -> str:
    """Return what is missing to read ``folder`` and how to get it; empty if nothing is."""
    if any(folder.glob("*/placements-*.csv")):
        return ""
    return (
        f"no {folder}/*/placements-*.csv: get them from {SOURCE}, and name the folder above"
        " speed-curves/ in PENSTOCK_DATA"
    )


def read(folder: Path) -> dict[tuple[str, str], Table]:
    """All that was measured, by application and cluster.

    Raises:
        UsageError: no such files, or a line that cannot be, with its file, line and column.
    """
    if lack := missing(folder):
        raise UsageError(lack, "curves")
    tables = {}
    for path in sorted(folder.glob("*/placements-*.csv")):
        cluster = path.stem.removeprefix("placements-")
        points = list(_points(path))
        per_node = max(-(-p.place.width // p.place.nodes) for p in points)
        wider = path.with_name(f"scalability-{cluster}.csv")
        if wider.exists():
            seen = {point.place for point in points}
            points += [point for point in _points(wider) if point.place not in seen]
        tables[path.parent.name, cluster] = Table(tuple(points), per_node, _examples(path.parent))
    return tables


def _points(path: Path) -> Iterator[Measured]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            try:
                if "placement" in row:
                    digits = [int(digit) for digit in row["placement"]]
                    nodes, width = len(digits), sum(digits)
                else:
                    nodes, width = int(row["num_nodes"]), int(row["num_replicas"])
                place = Allocation(width, nodes, _positive(row["local_bsz"]))
                yield Measured(place, _positive(row["step_time"]))
            except KeyError as error:
                raise UsageError(f"{where}: no column {error}", "curves") from None
            except (TypeError, ValueError) as error:
                raise UsageError(f"{where}: {error}", "curves") from None


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0.0:
        raise ValueError(f"{text} is not above 0")
    return value


def _examples(folder: Path) -> int:
    """Examples an epoch, by the file of the smallest batch, whose progress is in whole steps."""
    paths = {path.stem.partition("-")[2]: path for path in folder.glob("validation-*.csv")}
    if not paths:
        return EXAMPLES
    try:
        batch = min(map(int, paths))
        with paths[str(batch)].open(newline="") as file:
            return round(float(next(csv.DictReader(file))["progress"]) * batch)
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        lack = "a number of examples in the name, and `progress` of the first epoch"
        raise UsageError(f"{folder}/validation-*.csv: no {lack} ({error})", "curves") from None


def _between(known: list[tuple[float, float]], share: float) -> float:
    """Interpolate the seconds at ``share`` between its two neighbours, on logarithmic scales."""
    at = bisect_left(known, share, key=lambda item: item[0])
    if at == len(known):
        return known[-1][1]
    if at == 0:
        return known[0][1]
    (low, start), (high, end) = known[at - 1], known[at]
    part = math.log(share / low) / math.log(high / low)
    return math.exp((1.0 - part) * math.log(start) + part * math.log(end))
