"""On a GPU: the same bits at every width, what determinism, a resize and lanes cost there.

    python -m benchmarks.gpu --json FILE [--quick] [--only PART ...] [--device cpu]

- ``bits``, ``resize``: members are processes on one GPU, which NCCL does not allow: they talk
  through the CPU, as gangs do there.
- ``context``, ``estimates``, ``switches``, ``two_lanes``: of lanes (``lanes``).
- ``determinism``: an epoch with deterministic kernels over one without.
- ``live.lenet``, ``live.residual``: whole studies, one trial at a time, in slots and in lanes
  (``live``).

``benchmarks.gpu_campaign`` runs all of it, each part in a process with a limit. With ``--device
cpu`` the parts are rehearsed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from penstock.tasks.training.determinism import configure

from testkit.gangs import MODELS, OPTIMIZERS, Pool, straight
from testkit.results import Run

from ..lib import sharded
from . import lanes
from .live import live_figures

PLANS = [(2, 2, 2), (4, 4, 4), (1, 2, 4), (4, 1, 2), (2, 4, 1)]


def mismatches(chosen: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Count ``chosen`` plans of widths 1, 2 and 4 whose epochs are not those of one process."""
    pool = Pool(4)
    wrong = plans = 0
    for model in MODELS:
        for optimizer in OPTIMIZERS:
            alone = pool.carry_out(model, optimizer, straight(1, 1, 1))
            for widths in chosen:
                plans += 1
                wrong += pool.carry_out(model, optimizer, straight(*widths)) != alone
    pool.close()
    return {"bits.plans": plans, "bits.mismatches": wrong}


def resize(runs: int) -> dict[str, Any]:
    """Milliseconds that an epoch after a resize takes more than one at the same width."""
    pool = Pool(4)
    pool.carry_out("cnn", "sgd", straight(1, 2))  # warms up
    stages = straight(*[1, 2] * runs)
    began = time.perf_counter()
    pool.carry_out("cnn", "sgd", stages)
    resized = time.perf_counter() - began
    began = time.perf_counter()
    pool.carry_out("cnn", "sgd", straight(*[1] * runs))
    alone = time.perf_counter() - began
    began = time.perf_counter()
    pool.carry_out("cnn", "sgd", straight(*[2] * runs))
    both = time.perf_counter() - began
    pool.close()
    return {"resize_ms": (resized - alone - both) / (2 * runs) * 1e3}


def determinism(device: torch.device, runs: int) -> dict[str, Any]:
    """Seconds of an epoch with deterministic kernels by those without, a model each."""
    figures = {}
    for name, kind in sharded.MODELS.items():
        taken: dict[bool, list[float]] = {True: [], False: []}
        for run in range(runs + 1):
            for exact in (True, False) if run % 2 else (False, True):
                torch.use_deterministic_algorithms(exact)
                loop = sharded.Ours(kind, 1)
                loop.epoch()
                lanes.finish(device)
                spent = sharded.seconds(lambda run=loop: (run.epoch(), lanes.finish(device)))
                if run:  # the first one warms up
                    taken[exact].append(spent)
        figures[f"determinism.{name}"] = median(taken[True]) / median(taken[False])
    return figures


def _live(net: str) -> Callable[[torch.device, bool], dict[str, Any]]:
    def measured(device: torch.device, quick: bool) -> dict[str, Any]:
        shared = "gpu:0" if device.type == "cuda" else "cpu:1x1"
        found = live_figures(shared, quick=quick, nets=[net])
        return {f"live.{name}": value for name, value in found.items()}

    return measured


def _runs(quick: bool) -> int:
    return 5 if quick else 21


#: By name; each is told the device, and whether to be quick.
PARTS: dict[str, Callable[[torch.device, bool], dict[str, Any]]] = {
    "live.residual": _live("resnet"),
    "live.lenet": _live("lenet"),
    "context": lanes.contexts,
    "estimates": lanes.estimates,
    "switches": lanes.switches,
    "two_lanes": lanes.lanes,
    "bits": lambda _, quick: mismatches(PLANS[:1] if quick else PLANS),
    "resize": lambda _, quick: resize(_runs(quick)),
    "determinism": lambda device, quick: determinism(device, _runs(quick)),
}


def main() -> None:
    """Print a table, write the figures; without a GPU, say so."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("There is no GPU here: nothing was measured.")
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as a trainer does
    configure()
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    this_run = Run("gpu", baseline="plain PyTorch on the same device")
    figures: dict[str, Any] = {"torch": torch.__version__}
    for part in options.only:
        found = PARTS[part](device, options.quick)
        for name, value in found.items():
            print(f"gpu.{name:28} {value}", flush=True)
        figures |= found
        this_run.write(options.json, figures)  # so far, if it is cut off


if __name__ == "__main__":
    main()
