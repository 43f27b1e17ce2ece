"""Runs ``figures``, and ``live`` where real studies are asked for."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from testkit.results import Run

from . import figures as simulated


def main() -> None:
    parser = argparse.ArgumentParser(description=simulated.__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="12 studies instead of 100")
    parser.add_argument("--studies", type=int, help="how many random studies")
    parser.add_argument("--seed", default="", help="draws other studies")
    parser.add_argument("--live", type=int, help="so many studies of real workers instead")
    given = parser.parse_args()
    this_run = Run("limits", baseline="segments that carry no moment")
    began, load = time.perf_counter(), os.getloadavg()[0]
    studies = given.studies or (12 if given.quick else 100)
    if given.live:
        from .live import live_figures  # it imports torch

        figures = live_figures([f"{given.seed}{number}" for number in range(given.live)])
    else:
        figures = simulated.figures_of([f"{given.seed}{number}" for number in range(studies)])
    figures |= {
        "seconds": time.perf_counter() - began,
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }
    print("live" if given.live else "simulated")
    for name, value in figures.items():
        print(f"{name:40} {value:10.3f}")
    this_run.write(given.json, figures)


if __name__ == "__main__":
    main()
