"""Work that models of different architectures share: is it faster done once, with equal bits?

Networks with choices on digits, several epochs each, in two warm trainers of one core. A *way* is
the code, and whether a trainer has all of its trials at once. Ways run in turns, in alternating
order. The time of a trial includes its encoder and its evaluation, but not the start of trainers.
Also the memory of trainers that have just trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

import penstock
from penstock import nas
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from testkit.shared_reading import (
    TRAINED,
    Encoded,
    InLoss,
    Stream,
    Trainer,
    apart,
    digits,
    make_apart,
    started,
    task,
)

from ..lib.fusion_memory import pss

PROCESSES = 2
DIFFERENT = 8
#: Trials of each architecture, with learning rates of their own, and architectures.
ADAPTERS, ARCHITECTURES = 12, 3
EPOCHS = 6
#: So often is a way measured at most.
MOST_ROUNDS = 7


class Net(nas.ModelSpace):
    """Scores of ``inputs`` numbers; two layers that differ in kind and width."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        width = nas.choice("width", [32, 64, 96])
        self.first = nas.LayerChoice(
            {
                "linear": lambda: nn.Linear(inputs, width),
                "bottleneck": lambda: nn.Sequential(
                    nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, width)
                ),
                "deep": lambda: nn.Sequential(
                    nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width)
                ),
            },
            label="first",
        )
        self.act = nas.LayerChoice({"relu": nn.ReLU, "gelu": nn.GELU}, label="act")
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.first(x.flatten(1))))  # type: ignore[no-any-return]


class Read(Stream):
    """Examples that Python augments."""

    def model(self) -> nn.Module:
        return nas.build(Net, self.params, inputs=64)


class InMemory(Read):
    """The same examples as they are, in memory: there is nothing to read once."""

    def data(self) -> penstock.Data:
        pixels, labels = digits()
        parts = (slice(TRAINED), slice(TRAINED, None))
        return penstock.Data(*(TensorDataset(pixels[each], labels[each]) for each in parts))


class Behind(Encoded):
    """Models behind frozen convolutions, which are the encoder."""

    def model(self) -> nn.Module:
        return nas.build(Net, self.params, inputs=192)


class Within(InLoss):
    """Models behind frozen convolutions, which are a part of each step."""

    def model(self) -> nn.Module:
        return nn.Sequential(self.frozen(), nas.build(Net, self.params, inputs=192))


make_apart(Behind, ADAPTERS * MOST_ROUNDS)

Hashes = dict[tuple[int, int], str]


@dataclass(frozen=True)
class Way:
    """Code by round and trial, and whether a trainer has all its trials at once."""

    code: Callable[[int, int], type]
    beside: bool = False
    #: It takes so long that it is measured once.
    once: bool = False


def data_sharing(repeats: int) -> dict[str, Any]:
    """Batches that are read once for different architectures; and where there are none to read."""
    chosen = architectures(DIFFERENT)
    found = _compared(_read_ways(Read), chosen, repeats)
    in_memory = _compared(_read_ways(InMemory), chosen, repeats)
    return found | {f"in_memory.{name}": value for name, value in in_memory.items()}


def frozen(repeats: int) -> dict[str, Any]:
    """Activations that are computed once for different architectures."""
    return _compared(_frozen_ways(DIFFERENT), architectures(DIFFERENT), repeats)


def adapters(repeats: int) -> dict[str, Any]:
    """Some architectures with several learning rates each on a frozen network, and their bytes."""
    chosen = architectures(ARCHITECTURES) * (ADAPTERS // ARCHITECTURES)
    found = _compared(_frozen_ways(ADAPTERS), chosen, repeats)
    alone = _held(Within, chosen[:1])
    few, many = _held(Behind, chosen), _held(Behind, chosen * 2)
    more = max(1, (many - few) // ADAPTERS)
    return found | {
        "bytes.processes": ADAPTERS * alone,
        "bytes.together": few,
        "bytes.more": more,
        # Extrapolated, not tried: trials together that take the bytes of the processes.
        "fit": ADAPTERS + (ADAPTERS * alone - few) // more,
    }


def architectures(count: int) -> list[dict[str, Any]]:
    """Return ``count`` different configurations of ``Net``, always the same ones."""
    space = nas.space(Net, inputs=64)
    chance, found = Random(0), list[dict[str, Any]]()
    while len(found) < count:
        made = {label: chance.choice(each.choices) for label, each in space.items()}
        if made not in found:
            found.append(made)
    return found


def _read_ways(code: type) -> dict[str, Way]:
    return {
        "processes": Way(lambda at, n: code),
        "together": Way(lambda at, n: code, beside=True),
    }


def _frozen_ways(count: int) -> dict[str, Way]:
    """``cached``: each trial computes the activations once, for itself; ``processes``: always.

    In each round code is new to the trainers, so nothing is left of the round before.
    """
    return {
        "processes": Way(lambda at, n: Within, once=True),
        "cached": Way(lambda at, n: apart(Behind, at * count + n)),
        "together": Way(lambda at, n: apart(Behind, at), beside=True),
    }


def _compared(
    ways: Mapping[str, Way], chosen: Sequence[dict[str, Any]], repeats: int
) -> dict[str, Any]:
    """Return each other way's time over that of training together: medians, and the worst."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, Any] = {"epochs": 0, "mismatches": 0}
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        trainers = {name: _warm(stack, pool, way, chosen) for name, way in ways.items()}
        for at in range(repeats):
            hashes: dict[str, Hashes] = {}
            for name in list(ways)[:: -1 if at % 2 else 1]:
                if not (at and ways[name].once):
                    seconds, hashes[name] = _round(pool, trainers[name], ways[name], at, chosen)
                    times[name].append(seconds)
            # Frozen weights within a model are in its hash.
            alone = hashes["cached" if "cached" in ways else "processes"]
            found["epochs"] += len(alone)
            found["mismatches"] += sum(hashes["together"].get(n) != alone[n] for n in alone)
    for name in [each for each in ways if each != "together"]:
        ratios = [a / b for a, b in zip(times[name], times["together"], strict=False)]
        found |= {f"over_{name}": median(ratios), f"over_{name}.worst": min(ratios)}
    return found | {f"seconds.{name}": median(each) for name, each in times.items()}


def _warm(
    stack: ExitStack, pool: ThreadPoolExecutor, way: Way, chosen: Sequence[dict[str, Any]]
) -> list[Trainer]:
    seats = -(-len(chosen) // PROCESSES) if way.beside else 1
    begun = [started(seats) for _ in range(PROCESSES)]
    made = [stack.enter_context(each) for each in begun]
    # They load what models need.
    list(pool.map(lambda each: each.train([task(InMemory, 999, 1, chosen=chosen[0])]), made))
    return made


def _round(
    pool: ThreadPoolExecutor,
    trainers: Sequence[Trainer],
    way: Way,
    at: int,
    chosen: Sequence[dict[str, Any]],
) -> tuple[float, Hashes]:
    """The seconds until the slower trainer is done, and the hash of each epoch."""
    tasks = [
        task(way.code(at, n), len(chosen) * at + n, EPOCHS, fuse=way.beside, chosen=own)
        for n, own in enumerate(chosen)
    ]

    def train(i: int) -> tuple[float, Hashes]:
        own, hashes, seconds = tasks[i::PROCESSES], Hashes(), 0.0
        for some in [own] if way.beside else [[each] for each in own]:
            took, made = trainers[i].train(some)
            seconds += took["wall"]
            hashes |= made
        return seconds, hashes

    done = list(pool.map(train, range(PROCESSES)))
    return max(seconds for seconds, _ in done), {k: v for _, each in done for k, v in each.items()}


def _held(code: type, chosen: Sequence[dict[str, Any]]) -> int:
    """Bytes of a trainer that has just trained these models at once."""
    with started(len(chosen)) as trainer:
        trainer.train([task(code, n, 2, fuse=True, chosen=own) for n, own in enumerate(chosen)])
        return pss(trainer.pid)
