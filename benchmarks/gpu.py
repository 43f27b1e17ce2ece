"""On a GPU: the same bits at every width, what determinism, a resize and lanes cost there.

Members are processes on one GPU, which NCCL does not allow: they talk through the CPU, as gangs do
there. Of lanes: context, estimates of memory, switches, two lanes against one (``_gpu_lanes``).
``make gpu-check`` runs this, and says so where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from penstock.tasks.trainer.segment import configure

from . import _sharded
from ._gangs import MODELS, OPTIMIZERS, Pool, straight
from ._gpu_lanes import lane_figures

PLANS = [(2, 2, 2), (4, 4, 4), (1, 2, 4), (4, 1, 2), (2, 4, 1)]


def mismatches(pool: Pool) -> dict[str, Any]:
    """Plans of widths 1, 2 and 4 whose epochs are not those of one process."""
    wrong = plans = 0
    for model in MODELS:
        for optimizer in OPTIMIZERS:
            alone = pool.carry_out(model, optimizer, straight(1, 1, 1))
            for widths in PLANS:
                plans += 1
                wrong += pool.carry_out(model, optimizer, straight(*widths)) != alone
    return {"gpu.plans": plans, "gpu.mismatches": wrong}


def resize(pool: Pool, runs: int) -> dict[str, Any]:
    """Milliseconds that an epoch after a resize takes more than one at the same width."""
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
    return {"gpu.resize_ms": (resized - alone - both) / (2 * runs) * 1e3}


def determinism(runs: int) -> dict[str, Any]:
    """Seconds of an epoch with deterministic kernels by those without, a model each."""
    figures = {}
    for name, kind in _sharded.MODELS.items():
        taken: dict[bool, list[float]] = {True: [], False: []}
        for run in range(runs + 1):
            for exact in (True, False) if run % 2 else (False, True):
                torch.use_deterministic_algorithms(exact)
                loop = _sharded.Ours(kind, 1)
                loop.epoch()
                torch.cuda.synchronize()
                spent = _sharded.seconds(lambda run=loop: (run.epoch(), torch.cuda.synchronize()))
                if run:  # the first one warms up
                    taken[exact].append(spent)
        figures[f"gpu.determinism.{name}"] = median(taken[True]) / median(taken[False])
    return figures


def main() -> None:
    """Print a table, write the figures; without a GPU, say so."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("There is no GPU here: nothing was measured.")
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as a trainer does
    configure()
    runs = 5 if options.quick else 21
    figures: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    found = lane_figures(torch.device("cuda", 0), quick=options.quick)
    figures |= {f"gpu.lanes.{name}": value for name, value in found.items()}
    pool = Pool(4)
    figures |= mismatches(pool) | resize(pool, runs)
    pool.close()
    figures |= determinism(runs)
    for name, value in figures.items():
        print(f"{name:28} {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
