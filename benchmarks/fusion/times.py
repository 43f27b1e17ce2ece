"""Seconds of whole small studies: trials stepped together, alone, and compiled."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from statistics import median
from typing import Any

from penstock.extensions.fusion.epoch import Row
from penstock.extensions.fusion.fusion import Fusion
from penstock.tasks.training import loop

from testkit.results import summary

from ..lib.fusion_trials import configure, quiet, trial

#: Ways to train a study: (processes, threads of each).
WAYS = {"together": (2, 1), "alone": (2, 1), "threads": (1, 2), "compiled": (2, 1)}


class Processes:
    """Two processes that have loaded torch, and train parts of studies."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def seconds(self, way: str, kind: str, count: int, epochs: int) -> float:
        """Return wall seconds of ``count`` trials of ``epochs`` epochs, learning included."""
        processes, threads = WAYS[way]
        parts = [range(i, count, processes) for i in range(processes)]
        began = time.perf_counter()
        work = [self._pool.submit(train, way, kind, part, epochs, threads) for part in parts]
        for each in work:
            each.result()
        return time.perf_counter() - began


@contextmanager
def processes() -> Iterator[Processes]:
    """Two of them."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        made = Processes(pool)
        for way in ("together", "alone"):  # both load what they need
            made.seconds(way, "mlp_20_32_32_2", 4, 1)
        yield made


def train(way: str, kind: str, numbers: range, epochs: int, threads: int) -> None:
    """Train the trials of these numbers."""
    configure(threads)
    runs = [trial(kind, "adamw", n) for n in numbers]
    if way == "together":
        fusion = Fusion()
        for _ in range(epochs):
            for outcome in fusion.run_epochs([Row(run, quiet) for run in runs]):
                if isinstance(outcome, BaseException):
                    raise outcome
        return
    for run in runs:
        if way == "compiled":
            run.model.compile()
        for _ in range(epochs):
            loop.run_epoch(run, quiet)


def ratios(made: Processes, kind: str, count: int, epochs: int, repeats: int) -> dict[str, Any]:
    """Return the median speedup of training together over the better of the two ways alone.

    The worse of the two is measured once if it takes more than twice as long.
    """
    times: dict[str, list[float]] = {"alone": [], "threads": [], "together": []}
    for _ in range(repeats):
        for way, each in times.items():
            best = min(times["alone"][:1] + times["threads"][:1], default=0.0)
            if not each or each[0] <= 2 * best:
                each.append(made.seconds(way, kind, count, epochs))
    best_way = min(("alone", "threads"), key=lambda way: median(times[way]))
    found = [one / other for one, other in zip(times[best_way], times["together"], strict=True)]
    seconds = {f"seconds.{way}": median(each) for way, each in times.items()}
    return {"ratio": summary(found), **seconds}


def compiled_ratio(made: Processes, kind: str, count: int, epochs: int) -> float | str:
    """Return the speedup of together over compiled alone, measured once, or why there is none."""
    if not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        return "no compiler is here"
    return made.seconds("compiled", kind, count, epochs) / made.seconds(
        "together", kind, count, epochs
    )


def admission(kind: str, system: str) -> str:
    """Why four trials of a kind are not trained together under a system; empty if they are.

    In four epochs their bits are compared, and steps, an evaluation and epochs timed.
    """
    configure(1)
    fusion = Fusion()
    runs = [trial(kind, "adamw", n, system) for n in range(4)]
    for _ in range(4):
        fusion.run_epochs([Row(run, quiet) for run in runs])
    return fusion.refusal(runs[0])


def steady(kind: str, count: int, repeats: int) -> dict[str, object]:
    """Epochs together over epochs alone in this process, once all has been learned; medians."""
    configure(1)
    fusion = Fusion()
    together, alone = ([trial(kind, "adamw", n) for n in range(count)] for _ in range(2))
    rows = [Row(run, quiet) for run in together]
    for _ in range(4):
        fusion.run_epochs(rows)
        for run in alone:
            loop.run_epoch(run, quiet)
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        fusion.run_epochs(rows)
        between = time.perf_counter()
        for run in alone:
            loop.run_epoch(run, quiet)
        found.append((time.perf_counter() - between) / (between - began))
    return {"ratio": median(found), "refused": fusion.refusal(together[0])}
