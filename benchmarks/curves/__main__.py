"""Accuracy of step times predicted from a few measured points: our fit against simpler ones.

Data: step times of four trainings on five kinds of GPU cluster (``curves``). Three protocols,
seeds frozen, each of the 20 tables with the same weight:

- ``any_place``: n rows of a table drawn at random (any batch, any placement of at most 16 devices
  on 4 nodes) are measured; up to 100 others are foretold.
- ``one_curve``: one global batch (the largest of a device, 0.7 and half of it), devices packed on
  nodes; n widths drawn at random are measured, all others foretold. Between two measured batches of
  a device times are interpolated.
- ``narrowest``: the same, the n narrowest measured. As a live study begins.

Our fit never sees the application it is tested on: its prior is made from the coefficients of the
other three (means; standard deviations at least 1). The other predictors:

- ``linear``: time falls as devices rise, at the measured points' geometric mean.
- ``amdahl``: a fixed part and a part that falls, by least squares of relative errors.
- ``least_squares``: the same seven parameters fitted as AdaptDL does (L-BFGS-B on the logarithms
  with its start, bounds, penalties and what it fixes while unseen), to step times alone: AdaptDL
  measures computing apart as well.

Error: |foretold / measured - 1|. ``within_90``: the share inside the 90 % interval.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from penstock.profiling.costs.reference_curves import FILE, Fitted, fitted
from penstock.profiling.costs.throughput import Measured, packed_allocation

from testkit.curves import SOURCE, Table, missing, read
from testkit.data import data_folder
from testkit.predictors import (
    Predictor,
    all_rows,
    amdahl,
    least_squares,
    linear,
    ours,
    prior_without,
)
from testkit.results import Run

SEED = 20_231_023
POINTS = {"any_place": (3, 5, 8, 12), "one_curve": (1, 2, 3, 5), "narrowest": (1, 2, 3, 5)}
LEFT_OUT = 100

Tables = dict[tuple[str, str], Table]


def any_place(table: Table, draws: int, seed: int) -> Iterator[list[Measured]]:
    """All rows of at most 16 devices on 4 nodes, shuffled, ``draws`` times."""
    points = [p for p in table.points if p.place.width <= 16 and p.place.nodes <= 4]
    for draw in range(draws):
        order = np.random.default_rng([SEED, seed, draw]).permutation(len(points))
        yield [points[at] for at in order]


def one_curve(table: Table, draws: int, seed: int) -> Iterator[list[Measured]]:
    """The widths of one global batch, shuffled; three batches in turn."""
    for draw in range(draws):
        widths = next(narrowest(table, 1, draw))
        random = np.random.default_rng([SEED, seed, draw])
        yield [widths[at] for at in random.permutation(len(widths))]


def narrowest(table: Table, draws: int, first: int) -> Iterator[list[Measured]]:
    """The widths of one global batch in order; three batches in turn, more would be the same."""
    low, high = table.local_batches
    for draw in range(first, first + min(3, draws)):
        batch = high * 2.0 ** (-(draw % 3) / 2)
        yield [
            Measured(
                packed_allocation(width, table.per_node, batch), seconds * batch / table.examples
            )
            for width, seconds in table.curve(batch, table.devices)
            if low <= batch / width
        ]


def trial(
    predict: Predictor, points: list[Measured], known: int
) -> tuple[list[float], list[bool] | None]:
    """Errors of predictions from the first ``known`` points, and whether in the interval."""
    asked = points[known : known + LEFT_OUT]
    found, deviations = predict(points[:known], [point.place for point in asked])
    off = found - np.log([point.seconds for point in asked])
    inside = None if deviations is None else list(np.abs(off) < 1.645 * np.array(deviations))
    return list(np.abs(np.expm1(off))), inside


def summary(by_table: dict[Any, list[list[float]]], inside: list[float]) -> dict[str, float]:
    """Median and 90th percentile where each table has the same weight, and so each of its draws."""
    rows = [
        (error, 1.0 / len(draws) / len(errors))
        for draws in by_table.values()
        for errors in draws
        for error in errors
    ]
    errors, weights = np.array(sorted(rows)).T
    below = np.cumsum(weights) / weights.sum()
    found = {
        name: float(errors[np.searchsorted(below, part)])
        for name, part in (("median", 0.5), ("p90", 0.9))
    }
    return found | ({"within_90": float(np.mean(inside))} if inside else {})


def compare(tables: Tables, draws: int) -> dict[str, float]:
    """``<protocol>.<predictor>.<points>.<figure>``, and what fits took."""
    families, spent = fitted(), defaultdict[int, list[float]](list)
    figures: dict[str, float] = {}
    for protocol in (any_place, one_curve, narrowest):
        for known in POINTS[protocol.__name__]:
            errors = defaultdict[str, dict[Any, list[list[float]]]](lambda: defaultdict(list))
            inside = defaultdict[str, list[float]](list)
            for seed, (key, table) in enumerate(tables.items()):
                predictors: dict[str, Predictor] = {
                    "ours": ours(prior_without(key[0], families), spent[known]),
                    "least_squares": least_squares,
                    "amdahl": amdahl,
                    "linear": linear,
                }
                for points in protocol(table, draws, seed):
                    if len(points) < known + 2:
                        continue
                    for name, predict in predictors.items():
                        off, within = trial(predict, points, known)
                        errors[name][key].append(off)
                        if within is not None:
                            inside[name].append(float(np.mean(within)))
            for name, by_table in errors.items():
                where = f"{protocol.__name__}.{name}.{known}"
                for figure, value in summary(by_table, inside[name]).items():
                    figures[f"{where}.{figure}"] = value
    for known, times in sorted(spent.items()):
        figures[f"fit_ms.{known}.median"] = 1e3 * float(np.median(times))
        figures[f"fit_ms.{known}.p99"] = 1e3 * float(np.quantile(times, 0.99))
    return figures


def refit(tables: Tables) -> None:
    """Fit all coefficients again and write them, with their errors, to ``families.json``."""
    curves: dict[str, dict[str, Any]] = defaultdict(dict)
    for (application, cluster), table in tables.items():
        low, high = table.local_batches
        points = [
            point
            for point in table.points
            if point.place.nodes == packed_allocation(point.place.width, table.per_node).nodes
        ]
        found = all_rows(points, math.sqrt(low * high))
        family = Fitted(found, table.per_node, table.devices, (low, high), table.examples)
        errors = [abs(found.seconds(p.place) / p.seconds - 1.0) for p in points]
        curves[application][cluster] = {
            "coefficients": asdict(found),
            "local_batches": [low, high],
            "devices": table.devices,
            "rows": len(points),
            "error": {
                "median": round(float(np.median(errors)), 3),
                "p90": round(float(np.quantile(errors, 0.9)), 3),
            },
            "boundary": boundary(table, family),
        }
        print(application, cluster, json.dumps(curves[application][cluster]))
    content = {
        "about": (
            "Seven-parameter throughput model (profiling/costs/throughput.py), fitted by us"
            " (`python -m benchmarks.curves --refit`: least squares of logarithms, soft L1,"
            " gamma at most 10) to the step times of those rows of placements-*.csv and"
            " scalability-*.csv of the source that are on as few nodes as they fit on. Seconds"
            " and examples. error: |coefficients / measured - 1| over these rows. devices: the"
            " most measured; where that is one node, alpha_node and beta_node mean nothing."
            " boundary: seconds a step with one device more than a node has, over those of a"
            " full node, at the global batch where that is largest: above 1 the curve reverses."
        ),
        "source": f"{SOURCE} (Sia, SOSP 2023), measured by its authors; no file of it is here",
        "clusters": {c: {"per_node": t.per_node} for (_, c), t in sorted(tables.items())},
        "examples": {a: t.examples for (a, _), t in sorted(tables.items())},
        "curves": curves,
    }
    FILE.write_text(json.dumps(content, indent=1) + "\n")


def boundary(table: Table, family: Fitted) -> dict[str, float] | None:
    """Return the slowdown at the first node's boundary; None where there is one node only."""
    node, found = table.per_node, []
    for step in range(7):
        batch = round(table.local_batches[1] * node * 2.0 ** (-step / 2))
        measured = dict(table.curve(batch, node + 1))
        smooth = dict(family.curve(batch, node + 1))
        if {node, node + 1} <= measured.keys():
            ratio = measured[node + 1] / measured[node]
            found.append((round(ratio, 3), round(smooth[node + 1] / smooth[node], 3), batch))
    if not found:
        return None
    return dict(zip(("measured", "fitted", "batch"), max(found), strict=True))


def show(figures: dict[str, float]) -> None:
    """A table a protocol: median and 90th percentile by predictor and number of points."""
    for protocol, counts in POINTS.items():
        print(f"{protocol}: error, median (p90) after")
        print(" " * 16 + "".join(f"{count:>18} points" for count in counts))
        for name in ("ours", "least_squares", "amdahl", "linear"):
            of = [f"{protocol}.{name}.{count}" for count in counts]
            cells = [f"{figures[f'{key}.median']:.1%} ({figures[f'{key}.p90']:.1%})" for key in of]
            print(f"{name:16}" + "".join(f"{cell:>25}" for cell in cells))
        inside = [figures[f"{protocol}.ours.{count}.within_90"] for count in counts]
        print(f"{'ours, within_90':16}" + "".join(f"{part:>25.0%}" for part in inside))
    for count in sorted({count for counts in POINTS.values() for count in counts}):
        median, p99 = (figures[f"fit_ms.{count}.{name}"] for name in ("median", "p99"))
        print(f"a fit of {count:>2} points: {median:.2f} ms (p99 {p99:.2f} ms)")


def main() -> None:
    """Print the tables, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few draws")
    there = data_folder("speed-curves")
    parser.add_argument("--curves", type=Path, default=there, help="a folder of speed curves")
    parser.add_argument("--refit", action="store_true", help="write the coefficients anew")
    options = parser.parse_args()
    if lack := missing(options.curves):
        print(f"skipped: {lack}")
        return
    tables = read(options.curves)
    if options.refit:
        refit(tables)
        return
    this_run = Run("curves", baseline="least squares as AdaptDL, Amdahl's law")
    figures = compare(tables, 3 if options.quick else 30)
    figures |= {"seed": SEED, "tables": len(tables)}
    show(figures)
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
