"""Fluid's own workloads for real: how long each tuner takes under each policy.

    python -m benchmarks.fluid_workloads --json FILE [--quick]

A small convolution net on CIFAR-10, a recurrent model of words on WikiText-2 and DCGAN on MNIST
(``examples/``), with the hyperparameters that Fluid tuned, scaled down to two cores: a part of the
data, few epochs, narrower networks, and targets that are within reach of these (Fluid's were 90 %
accuracy, a perplexity of 140 and a score of 5.2). Every tuner has the same space. Makespan and time
to target are from submission, by the ledger; the trainers are warm.

An asynchronous tuner decides by what has arrived, so under another policy it may train other epochs
and find another best: ``epochs`` says how many. What is missing of the data is said and left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.server.services import services
from penstock.scheduler.model.study import StrategySpec

from testkit.results import Run

from ..lib.plans import policy
from ..lib.studies import installation

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import cifar10_cnn
import dcgan_mnist
import mnist_lenet
import word_model

DEVICES = 2
#: On how many devices a trial may be: with fifo each has one, as in ``benchmarks.placement``.
POLICIES = {"fifo": 1, "dynamic_fluid": DEVICES, "waterfill": DEVICES}
MAX_EPOCHS = 9


@dataclass(frozen=True)
class Workload:
    """A model to tune with its data, its search space, and the target of its metric."""

    code: Any
    space: dict[str, Any]
    metric: str
    direction: str
    target: float

    def reached(self, value: float) -> bool:
        """Return True if ``value`` is the target or better."""
        return value >= self.target if self.direction == "maximize" else value <= self.target


def workloads(quick: bool) -> dict[str, Workload]:
    """Those whose data is here."""
    part = 4 if quick else 1
    cifar = {**cifar10_cnn.SPACE, "examples": [1024 // part]}
    words = {**word_model.SPACE, "words": [6000 // part]}
    dcgan = {**dcgan_mnist.SPACE, "examples": [1024 // part]}
    every = {
        "cifar10": Workload(cifar10_cnn.SmallCnn, cifar, "accuracy", "maximize", 0.35),
        "words": Workload(word_model.WordModel, words, "loss", "minimize", 5.0),
        "dcgan": Workload(dcgan_mnist.Dcgan, dcgan, "score", "maximize", 1.5),
    }
    files = {
        "cifar10": [cifar10_cnn.folder() / file for file in cifar10_cnn.FILES],
        "words": [word_model.folder() / file for file in word_model.FILES],
        "dcgan": [mnist_lenet.folder() / f"{name}.gz" for name in mnist_lenet.FILES],
    }
    for name, paths in files.items():
        absent = [str(path) for path in paths if not path.exists()]
        if absent:
            print(f"{name} is left out, set PENSTOCK_DATA: no {', '.join(absent)}")
            del every[name]
    return every


def tuners(epochs: int) -> dict[str, tuple[StrategySpec, str]]:
    """Strategy and sampler by the name that Fluid's paper has for them."""
    hyperband = penstock.Hyperband(max_epochs=epochs)
    return {
        "random": (penstock.FullBudget(epochs), "random"),
        "hyperband": (hyperband, "random"),
        "asha": (penstock.ASHA(max_epochs=epochs), "random"),
        "bohb": (hyperband, "bohb"),
        "sync_bohb": (penstock.Hyperband(max_epochs=epochs, overlap=False), "bohb"),
    }


def run(
    settings: Settings,
    workload: Workload,
    tuner: tuple[StrategySpec, str],
    trials: int,
    widest: int,
) -> dict[str, float | None]:
    """One study: seconds to its end and to the target (None: not reached), its best, its epochs."""
    strategy, sampler = tuner
    study = penstock.create_study(
        metric=workload.metric,
        direction=workload.direction,
        sampler=sampler,
        strategy=strategy,
        seed=5,
        resources=penstock.Resources(max_width=widest, shards=DEVICES),
    )
    study.optimize(
        workload.code, workload.space, trials, show_progress=False, devices=settings.devices
    )
    reader = Reader(settings.ledger_url)
    row, epochs = reader.study(study.id), reader.epochs(study.id)
    assert row.finished_at is not None
    best = max if workload.direction == "maximize" else min
    hits = (each.at - row.created_at for each in epochs if workload.reached(each.value))
    return {
        "makespan_s": row.finished_at - row.created_at,
        "target_s": next(hits, None),
        "best": best(each.value for each in epochs),
        "epochs": len(epochs),
        "wide_epochs": sum(each.width > 1 for each in epochs),
    }


def main() -> None:
    """Print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="random and sync_bohb, few epochs")
    options = parser.parse_args()
    this_run = Run("fluid_workloads", baseline="fifo, one run each")
    chosen = workloads(options.quick)
    epochs, trials = (3, 3) if options.quick else (MAX_EPOCHS, 9)
    by = tuners(epochs)
    if options.quick:
        by = {name: by[name] for name in ("random", "sync_bohb")}
    figures: dict[str, Any] = {"load_before": os.getloadavg()[0]}
    began = time.monotonic()
    print(f"load before {figures['load_before']:.1f}")
    for place, widest in POLICIES.items():
        with policy(place), installation(f"cpu:{DEVICES}x1") as settings:
            services.ensure_up(settings, settings.devices)
            for name, workload in chosen.items():
                run(settings, workload, (penstock.FullBudget(1), "random"), 2 * DEVICES, widest)
                for tuner, how in by.items():
                    found = run(settings, workload, how, trials, widest)
                    figures |= {f"{name}.{tuner}.{place}.{k}": v for k, v in found.items()}
                    target = found["target_s"]
                    reached = "not reached" if target is None else f"{target:8.1f} s"
                    print(
                        f"{name:8} {tuner:10} {place:14} {found['makespan_s']:8.1f} s, target"
                        f" {reached:>11}, best {found['best']:.3f} in {found['epochs']} epochs,"
                        f" {found['wide_epochs']} of them wide",
                        flush=True,
                    )
    print("\nmakespan beside fifo:")
    for name in chosen:
        for tuner in by:
            base = figures[f"{name}.{tuner}.fifo.makespan_s"]
            for place in list(POLICIES)[1:]:
                times = base / figures[f"{name}.{tuner}.{place}.makespan_s"]
                figures[f"{name}.{tuner}.{place}.vs_fifo"] = times
                print(f"  {name:8} {tuner:10} {place:14} {times:.2f} x as fast")
    figures |= {"load_after": os.getloadavg()[0], "seconds": time.monotonic() - began}
    print(f"load after {figures['load_after']:.1f}, {figures['seconds']:.0f} s")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
