"""Adapters on one frozen network: a trial each, in two processes, and all together.

Twelve small heads on digits behind the three frozen convolutions of ``shared_reading``, ten epochs
each. ``processes`` is what users do: the frozen part is in the model, and two trainers of one core
train one trial after another. ``encoded`` has it in ``encoder()``, and is otherwise the same.
``together`` has six seats a trainer besides. All trainers are warm.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from typing import Any

from testkit.results import summary
from testkit.shared_reading import Encoded, InLoss, Trainer, started, task

from ..lib.fusion_memory import pss

TRIALS, EPOCHS, PROCESSES = 12, 10, 2
#: Way: the code, and how many trials a trainer has at once.
WAYS: dict[str, tuple[type, int]] = {
    "processes": (InLoss, 1),
    "encoded": (Encoded, 1),
    "together": (Encoded, TRIALS // PROCESSES),
}


def figures(repeats: int) -> dict[str, Any]:
    """Return speedups of training together, and bytes; medians of alternating pairs."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for at in range(repeats):
        for way in list(WAYS)[:: -1 if at % 2 else 1]:
            times[way].append(_seconds(way))
    found: dict[str, Any] = {}
    for way in ("processes", "encoded"):
        ratios = [a / b for a, b in zip(times[way], times["together"], strict=True)]
        found[f"over_{way}"] = summary(ratios)
    found |= {f"seconds.{way}": median(each) for way, each in times.items()}
    alone = _held(InLoss, 1)
    few, many = _held(Encoded, TRIALS), _held(Encoded, 2 * TRIALS)
    each = max(1, (many - few) // TRIALS)
    return found | {
        "bytes.processes": TRIALS * alone,
        "bytes.together": few,
        "bytes.more": each,
        # Extrapolated, not tried: trials together that take the bytes of the twelve processes.
        "fit": TRIALS + (TRIALS * alone - few) // each,
    }


def _seconds(way: str) -> float:
    code, seats = WAYS[way]
    with ExitStack() as stack:
        trainers = [stack.enter_context(started(seats)) for _ in range(PROCESSES)]
        parts = [range(i, TRIALS, PROCESSES) for i in range(PROCESSES)]

        def train(trainer: Trainer, numbers: range) -> float:
            if seats > 1:
                return _wall(trainer, code, numbers)
            return sum(_wall(trainer, code, [n]) for n in numbers)

        with ThreadPoolExecutor(PROCESSES) as pool:
            return max(pool.map(train, trainers, parts))


def _wall(trainer: Trainer, code: type, numbers: Any) -> float:
    tasks = [task(code, n, EPOCHS, fuse=len(numbers) > 1) for n in numbers]
    return trainer.train(tasks)[0]["wall"]


def _held(code: type, count: int) -> int:
    """Return the PSS in bytes of a trainer that has just trained ``count`` trials at once."""
    with started(count) as trainer:
        _wall(trainer, code, range(count))
        return pss(trainer.pid)
