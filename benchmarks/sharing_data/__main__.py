"""One reading for many: gain of a lane's trials that prepare their data once.

    python -m benchmarks.sharing_data --json FILE [--quick] [--only PART ...]

Whole epochs of digits in a real trainer of one core, started again for each measurement; the trials
sit in its seats, are not trained together, and have equal random numbers. With P seconds of
preparation and H of all else a trial, K trials that prepare once can be (P + H) / (P / K + H) times
as fast as each for itself: the *ideal*, from P measured apart, and P + H a trial each for itself.
Each figure also under ``cpu``: by the trainer's seconds of a core, whatever else the machine does.

- ``stream``: 4 trials whose examples Python augments. ``stream.of_ideal``: the part of the ideal
  that is reached; ``stream.mismatches``: epochs with other bits.
- ``node``: 2 trials in a trainer of one core each, likewise. Reading is most of what they do.
- ``live``: whole studies on real workers with two devices of one core, with all costs
  (``_reading_live.CASES``); ``live.full.ratio``: times as long where each trial reads for itself.
- ``encoder``: 8 trials on the activations of frozen convolutions, likewise.
  ``encoder.over_in_loss``: over 8 trials that compute them in each step, once.
- ``copies``: microseconds of reading, copying and comparing versions of a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from penstock.extensions.lanes.worker import variables

from testkit.results import Run, summary

PARTS = ("stream", "node", "live", "encoder", "copies")
TRIALS = {"stream": 4, "node": 2, "encoder": 8}
EPOCHS = {"stream": 10, "node": 20, "encoder": 10}


def measure(parts: list[str], *, quick: bool) -> dict[str, Any]:
    """The figures of these parts."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    from .live import live

    found: dict[str, Any] = {"load.begin": os.getloadavg()[0]}
    repeats = 3 if quick else 7
    for part in parts:
        if part == "copies":
            figures = _copies()
        elif part == "live":
            figures = live(repeats)
        else:
            figures = _part(part, repeats)
        found |= {f"{part}.{name}": value for name, value in figures.items()}
    return found | {"load.end": os.getloadavg()[0]}


def _part(part: str, repeats: int) -> dict[str, Any]:
    from testkit.shared_reading import Encoded, InLoss, Read, Stream, apart

    count, epochs = TRIALS[part], EPOCHS[part]
    kind = {"stream": Stream, "node": Read, "encoder": Encoded}[part]
    ways: dict[str, Callable[[int], type]] = {
        "shared": lambda i: kind,
        "apart": lambda i: apart(kind, i),
    }
    prepare = _encoding if part == "encoder" else partial(_reading, kind)
    train = _trained_beside if part == "node" else _trained
    prepare()  # once before it counts
    found: dict[str, Any] = {"mismatches": 0, "epochs": 0}
    rounds: list[dict[str, dict[str, float]]] = []
    for at in range(repeats):
        turns = list(ways)[:: -1 if at % 2 else 1]
        ran = {name: train(ways[name], count, epochs) for name in turns}
        (shared, one), (apart_s, other) = ran["shared"], ran["apart"]
        times = 1 if part == "encoder" else epochs
        prepared = {name: p * times for name, p in prepare().items()}
        if part == "node":  # side by side half of it is saved
            prepared["wall"] /= count
        rounds.append({"shared": shared, "apart": apart_s, "prepares": prepared})
        found["epochs"] += len(other)
        found["mismatches"] += sum(other[name] != one.get(name) for name in other)
    found |= _ratios(rounds, count, "wall") | _under("cpu", _ratios(rounds, count, "cpu"))
    if part == "encoder":
        in_loss, _ = _trained(lambda i: InLoss, count, epochs)
        found |= {"in_loss_s": in_loss["wall"]}
        found |= {"over_in_loss": in_loss["wall"] / found["shared_s"]}
        found |= {"cpu.over_in_loss": in_loss["cpu"] / found["cpu.shared_s"]}
    return found


def _ratios(rounds: list[dict[str, dict[str, float]]], count: int, clock: str) -> dict[str, Any]:
    times = {
        name: [each[name][clock] for each in rounds] for name in ("shared", "apart", "prepares")
    }
    ratios = [a / s for a, s in zip(times["apart"], times["shared"], strict=True)]
    ideals = [
        a / (a - (count - 1) * p) for a, p in zip(times["apart"], times["prepares"], strict=True)
    ]
    found: dict[str, Any] = {
        "ratio": summary(ratios),
        "ideal": median(ideals),
        "of_ideal": median(r / i for r, i in zip(ratios, ideals, strict=True)),
    }
    return found | {f"{name}_s": median(of) for name, of in times.items()}


def _under(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}.{figure}": value for figure, value in figures.items()}


@contextmanager
def _clocks() -> Iterator[dict[str, float]]:
    """The seconds and the seconds of a core that pass inside."""
    found: dict[str, float] = {}
    began, used = time.perf_counter(), time.process_time()
    yield found
    found |= {"wall": time.perf_counter() - began, "cpu": time.process_time() - used}


def _trained(code: Callable[[int], type], count: int, epochs: int) -> tuple[dict[str, float], Any]:
    """Seconds of the trials in a new trainer, and the hashes of their epochs."""
    from testkit.shared_reading import started, task

    with started(count) as trainer:
        return trainer.train([task(code(i), i, epochs) for i in range(count)])


def _trained_beside(
    code: Callable[[int], type], count: int, epochs: int
) -> tuple[dict[str, float], Any]:
    """Train trials at the same time in new trainers, one each; return the same figures."""
    from testkit.shared_reading import of_one_node, task

    with of_one_node(count) as trainers, ThreadPoolExecutor(count) as threads:
        ran = list(
            threads.map(lambda i: trainers[i].train([task(code(i), i, epochs)]), range(count))
        )
    seconds = {
        "wall": max(each["wall"] for each, _ in ran),
        "cpu": sum(each["cpu"] for each, _ in ran),
    }
    return seconds, {name: state for _, found in ran for name, state in found.items()}


def _reading(kind: type) -> dict[str, float]:
    """Seconds in which an epoch's batches are read."""
    from penstock.tasks.training.data import length, read

    data = kind({}).data().train
    parts = torch.split(torch.randperm(length(data)), kind.batch_size)
    with _clocks() as found:
        for _ in read(data, parts, range(len(parts)), torch.device("cpu")):
            pass
    return found


def _encoding() -> dict[str, float]:
    """Seconds in which all data are encoded."""
    from penstock.extensions.sharing.trainer import hook
    from penstock.tasks.gangs.rendezvous import RendezvousHandler
    from penstock.tasks.trainer.hooks import Hooks, Parts
    from penstock.tasks.trainer.made_once import TrackedParams
    from penstock.tasks.trainer.shared_data import SharedData
    from penstock.tasks.trainer.warm import warm_capacity
    from penstock.tasks.training.loop import CPU

    from testkit.shared_reading import Encoded

    parts = Parts(None, warm_capacity, RendezvousHandler("127.0.0.1:1:word", CPU))
    reads = TrackedParams({})
    with _clocks() as found:
        SharedData(Hooks([hook(parts)])).of(Encoded(reads), reads)
    return found


def _copies() -> dict[str, float]:
    """Return the costs of a batch of 64: reading by Python, copying, and comparing versions."""
    from penstock.extensions.sharing.streams import copied, is_copyable
    from torch.utils.data import default_collate

    from testkit.shared_reading import Stream

    data = Stream({}).data().train
    found = {}
    for name, batch in {
        "digits": default_collate([data[i] for i in range(64)]),
        "images": [torch.zeros(64, 3, 32, 32), torch.zeros(64, dtype=torch.int64)],
    }.items():
        found[f"copy_us.{name}"] = _microseconds(lambda batch=batch: copied(batch))
        found[f"check_us.{name}"] = _microseconds(lambda batch=batch: is_copyable(batch))
        found[f"version_us.{name}"] = _microseconds(
            lambda batch=batch: [each._version for each in batch]
        )
    found["read_us.digits"] = 1e6 * _reading(Stream)["wall"] / -(-len(data) // 64)
    return found


def _microseconds(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(200):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1e6 * median(times)


def main() -> None:
    """Run the benchmark as the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="three of each: rough figures")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    this_run = Run("sharing_data", baseline="each trial reads for itself, in turns")
    if "GLIBC_TUNABLES" not in os.environ:  # read when the process starts, as by a trainer
        os.environ |= {**variables(), "OMP_NUM_THREADS": "1"}
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.sharing_data", *sys.argv[1:]])
    found = measure(list(given.only), quick=given.quick)
    this_run.write(given.json, found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
