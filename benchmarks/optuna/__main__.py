"""Plain Optuna compared with Penstock: results, draws and times of an unchanged study.

    python -m benchmarks.optuna --json FILE [--quick] [--only KEY ...]

Both sides run in one run of the benchmark, on the same objectives (``tasks``). The keys are
explained in ``search`` (``search_ratio``, ``same_draws``) and ``times`` (all
others: ``_ms`` is a median, ``ratio`` ours over that side). A part that fails is reported and
listed under ``failed``, and the rest goes on. With each part comes the machine's load before it.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

from benchmarks.optuna.search import same_draws, search_ratio
from benchmarks.optuna.times import TIMES
from testkit.results import Run

PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    **TIMES,
    "same_draws": same_draws,
    "search_ratio": search_ratio,
}


def measure(keys: list[str], *, quick: bool) -> dict[str, Any]:
    """The figures of these parts, printed as they come."""
    figures: dict[str, Any] = {"optuna": optuna.__version__, "cores": os.cpu_count()}
    failed: dict[str, str] = {}
    for key in keys:
        load, began = os.getloadavg()[0], time.monotonic()
        print(f"{key} (load {load:.1f})", flush=True)
        try:
            found = PARTS[key](quick)
        except Exception as error:  # whatever it is, the other parts go on
            failed[key] = f"{type(error).__name__}: {error}"
            print(f"  failed: {failed[key][:500]}", flush=True)
            continue
        for name, value in found.items():
            said = value if isinstance(value, dict) else f"{value:10.3f}"
            print(f"  {name:44} {said}", flush=True)
        figures |= found | {f"{key}.load": load, f"{key}.seconds": time.monotonic() - began}
    return figures | {"failed": failed}


def main() -> None:
    """Print the parts, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few seeds and runs: rough figures")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="KEY")
    options = parser.parse_args()
    this_run = Run("optuna", baseline="plain Optuna with the same study")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    figures = measure(options.only, quick=options.quick)
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
