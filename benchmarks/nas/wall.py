"""Models of a MnasNet-like space, an epoch each: together, one at a time, and a process each.

``together``: a study of all models with what Penstock has across models. Trials share their random
numbers, so a batch that Python augments is read once for those that are at it, within a trainer and
between trainers of the node; lanes have seats, in which trials of one structure could be trained
together. ``alone``: the same study, each trial with random numbers of its own and a device for
itself. ``processes``: each model in a process that ends with it, two at a time, by a plain loop.

Two devices of one core, one thread each. Penstock's sides are installations of their own, warm: a
first study has loaded code and data, which ``cold`` has, services included. Their time is from
before the study is created until the call that runs it returns. A process has to start and to
import torch each time, and the part of torch that an optimiser imports; all cost the same, so only
some of the models are trained so. Times are of a model, and sides run in turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import penstock
from penstock import nas
from penstock.app.ledger.reader import Reader
from penstock.scheduler.model.events import EpochReported

from testkit.nas_spaces import MnasNet

from ..lib.studies import installation
from .wall_model import WIDTH, Model, reading

CORES, SEATS = 2, 8
#: Models of the study that loads code and data.
FIRST = 4
#: One in this many models is also run in a process of its own.
ONE_IN = 10
Chosen = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Ran:
    """Models that were trained once each: seconds a model, and of its epoch alone."""

    seconds: float
    epoch: float
    #: In all, until code and data were loaded, services included.
    cold: float = 0.0
    #: For how many trials the batches of an epoch were read once within its trainer, on average.
    readers: float = 1.0


@cache
def space() -> dict[str, Any]:
    """All choices; found once, before anything is timed."""
    return nas.space(MnasNet, width=WIDTH)


def together(chosen: Chosen) -> Ran:
    """Run the chosen models in one study that does common work once."""
    return _study(f"cpu:{CORES}x1*1x{SEATS}", chosen, seeding="shared", fuse="auto")


def alone(chosen: Chosen) -> Ran:
    """Nothing is common."""
    return _study(f"cpu:{CORES}x1", chosen, seeding="trial", fuse="off")


def processes(chosen: Chosen) -> Ran:
    """A process a model, for some of them."""
    chosen = chosen[::ONE_IN]
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

    def trained(params: dict[str, Any]) -> float:
        found = subprocess.run(
            [sys.executable, "-m", "benchmarks.nas.wall_model", json.dumps(params)],
            cwd=Path(__file__).parents[2],
            env=os.environ | one,
            check=True,
            capture_output=True,
        )
        seconds: float = json.loads(found.stdout)["seconds"]
        return seconds

    began = time.perf_counter()
    with ThreadPoolExecutor(CORES) as pool:
        epochs = list(pool.map(trained, chosen))
    return Ran((time.perf_counter() - began) / len(chosen), fmean(epochs))


SIDES: dict[str, Callable[[Chosen], Ran]] = {
    each.__name__: each for each in (together, alone, processes)
}


def wall(chosen: Chosen, rounds: int) -> dict[str, Any]:
    """All models on all sides, some of them in each round, in alternating order."""
    ran: dict[str, list[Ran]] = {name: [] for name in SIDES}
    for at in range(rounds):
        for name in list(SIDES)[:: -1 if at % 2 else 1]:
            ran[name].append(each := SIDES[name](chosen[at::rounds]))
            load = os.getloadavg()[0]
            print(
                f"  wall: {name} {each.seconds:.2f} s a model, {each.epoch:.2f} its epoch,"
                f" load {load:.1f}",
                flush=True,
            )
    return {"models": len(chosen), "reading_s": reading()} | figures_of(ran, len(chosen))


def figures_of(ran: Mapping[str, Sequence[Ran]], models: int) -> dict[str, float]:
    """Medians over rounds, and the worst.

    ``over_SIDE`` is its time over that of ``together``, above 1 where that is faster, and
    ``alone.over_SIDE`` over that of ``alone``. ``cold``: with what it takes until code and data are
    loaded, divided by the ``models``.
    """
    ours = ran["together"]
    found: dict[str, float] = {
        "cold_s": median(each.cold for each in ours),
        "readers": median(each.readers for each in ours),
    }
    for name, each in ran.items():
        found[f"{name}_s"] = median(one.seconds for one in each)
        found[f"{name}.epoch_s"] = median(one.epoch for one in each)
    for prefix, base, other in (
        ("", "together", "alone"),
        ("", "together", "processes"),
        ("alone.", "alone", "processes"),
    ):
        pairs = zip(ran[base], ran[other], strict=True)
        ratios = [b.seconds / a.seconds for a, b in pairs]
        found[f"{prefix}over_{other}"] = median(ratios)
        found[f"{prefix}over_{other}.worst"] = min(ratios)
    found["over_processes.cold"] = median(
        b.seconds / (a.cold / models + a.seconds)
        for a, b in zip(ours, ran["processes"], strict=True)
    )
    return found


def _study(devices: str, chosen: Chosen, **given: Any) -> Ran:
    begun = time.perf_counter()
    with installation(devices) as settings:

        def run(some: Chosen) -> str:
            study = penstock.create_study(
                metric="accuracy",
                direction="maximize",
                sampler="random",
                strategy=penstock.FullBudget(1),
                **given,
            )
            for params in some:
                study.enqueue_trial(params)
            study.optimize(Model, space(), len(some), show_progress=False, devices=devices)
            return study.id

        run(chosen[-FIRST:])
        began = time.perf_counter()
        study = run(chosen)
        ended = time.perf_counter()
        reader = Reader(settings.ledger_url)
        rows = reader.epochs(study)
        assert len(rows) == len(chosen)
        readers = [event.readers for _, event in reader.of_trials(study, EpochReported)]
        epoch = fmean(row.seconds for row in rows)
        seconds = (ended - began) / len(chosen)
        return Ran(seconds, epoch, began - begun, fmean(map(float, readers)))
