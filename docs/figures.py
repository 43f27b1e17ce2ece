"""Put measured figures into docs/history/measured.md: python docs/figures.py build/bench/*.json.

A figure is written only where a benchmark has measured it; without files the table is empty.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "history" / "measured.md"
BEGIN = "<!-- figures: filled in by `python docs/figures.py build/bench/*.json` -->\n"
END = "<!-- /figures -->"

#: Key of a benchmark's JSON, what it says, and how the number is written.
ROWS = (
    (
        "ratio_p50",
        "Round trip of an empty epoch task, beside a raw Celery task with its result: median",
        "{:.2f} times",
    ),
    ("ratio_p99", "the same, 99th percentile", "{:.2f} times"),
    ("tasks_per_s", "Epoch tasks a second through one scheduler, 8 slots", "{:,.0f}"),
    ("tasks_ratio", "the same, beside raw Celery with its result backend", "{:.2f} times"),
    ("event_us", "An epoch event in the engine, 200 trials on 64 devices", "{:.0f} µs"),
    ("overhead_share_1s", "Device time that is not training, 1-second epochs", "{:.2%}"),
    ("overhead_share_50ms", "the same, 50-millisecond epochs", "{:.2%}"),
    ("startup_s", "From `penstock run` to the first training step", "{:.1f} s"),
    ("resize_ms.140.p50", "A resize of a trial of 140 MB, from step to step: median", "{:.0f} ms"),
    ("resize_ms.140.p99", "the same, 99th percentile", "{:.0f} ms"),
    ("plans", "Random plans of widths, moves and replays, some on Celery workers", "{:,}"),
    ("mismatches", "of them, with other bits than on one device", "{}"),
    (
        "waterfill.ratio.mean",
        "Makespan beside a lower bound of it, water-filling, simulated: mean of 504 instances",
        "{:.3f} times",
    ),
    ("waterfill.ratio.p95", "the same, 95th percentile", "{:.3f} times"),
    ("dynamic_fluid.ratio.mean", "the same of Fluid's algorithm: mean", "{:.3f} times"),
    (
        "waterfill.ratio",
        "The same of real studies on two cores, from submission to end: mean of four",
        "{:.3f} times",
    ),
    (
        "ahead.syne_tune.random.10ms",
        "Epochs of 10 ms under random search, beside Syne Tune's local back end: as fast",
        "{:.1f} times",
    ),
    ("ahead.ray.random.10ms", "beside Ray Tune as it is by default", "{:.1f} times"),
    ("ahead.ray_reuse.random.10ms", "beside Ray Tune with warm actors", "{:.2f} times"),
    (
        "ahead.optuna.random.10ms",
        "beside Optuna in two processes, which keep nothing",
        "{:.2f} times",
    ),
    (
        "decide_early.epochs_share",
        "Curve stopping, simulated on LCBench's curves: epochs beside full training's",
        "{:.0%}",
    ),
    ("decide_early.regret", "the same: points of accuracy that it costs", "{:.1f}"),
    (
        "curves.any_place.ours.5.median",
        "Step times of real trainings on GPUs, foretold from five others: median error",
        "{:.1%}",
    ),
    (
        "faults",
        "Faults injected into running studies (`kill -9`, lost data, stopped workers)",
        "{}",
    ),
    ("lost", "epochs lost", "{}"),
    ("doubled", "epochs counted twice", "{}"),
    ("wrong", "epochs with other bits than undisturbed", "{}"),
    ("hostile.attacks", "Attacks by hostile code, bytes, files and surroundings", "{}"),
    ("hostile.wedged", "of them, after which a slot was lost", "{}"),
    ("hostile.leaked_processes", "processes left behind", "{}"),
    ("hostile.crashed_services", "services that crashed", "{}"),
    ("hostile.wrong", "results that were wrong", "{}"),
)


def filled(text: str, figures: Mapping[str, object]) -> str:
    """``text`` with the table between the marks made of ``figures``; only numbers are."""
    rows = [
        f"| {words} | {form.format(figures[key])} |\n"
        for key, words, form in ROWS
        if isinstance(figures.get(key), int | float)
    ]
    table = "".join(("\n| Measured | |\n|---|---|\n", *rows, "\n")) if rows else ""
    found = re.search(f"{re.escape(BEGIN)}(.*?){re.escape(END)}", text, flags=re.DOTALL)
    if found is None:
        raise SystemExit(f"{PAGE} has no place for figures")
    return text[: found.start(1)] + table + text[found.end(1) :]


def main(files: Sequence[str]) -> None:
    """Read the benchmarks' files and write the page."""
    figures: dict[str, object] = {}
    for file in files:
        found = json.loads(Path(file).read_text())
        # Chaos counts what is wrong by the same name.
        figures |= {f"hostile.{k}": v for k, v in found.items()} if "attacks" in found else found
    PAGE.write_text(filled(PAGE.read_text(), figures))


if __name__ == "__main__":
    main(sys.argv[1:])
