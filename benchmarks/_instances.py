"""Instances of the placement problem: trials with real speed curves, on so many devices.

Frozen: instance k of a family is drawn from ``Random(f"penstock {family} {k}")``, and nothing else
goes into it. Speed curves are those of ``_curves`` (our fits to measured trainings, node boundaries
included), or synthetic ones for CPU cores, whose efficiency falls with every core.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from penstock.profiling.errors import UsageError

from . import _curves

#: Devices, odd counts among them.
DEVICES = (4, 5, 7, 8, 11, 16, 16, 24, 32, 33, 48, 64)
TRIALS = (4, 6, 8, 9, 12, 16, 27, 27, 40, 60, 81, 120, 200)
#: Seconds of a resize by application: a larger model takes longer. Pollux charges 15 to 250 s.
PRICES = {
    "cifar10": (0.0, 0.05, 5.0, 25.0),
    "deepspeech2": (0.0, 0.05, 15.0, 60.0),
    "yolov3": (0.0, 0.1, 30.0, 120.0),
    "imagenet": (0.0, 0.5, 60.0, 250.0),
}
#: Global batches, examples.
BATCHES = {
    "cifar10": (128, 256, 512, 1024),
    "deepspeech2": (20, 40, 80, 160),
    "yolov3": (8, 16, 32, 64),
    "imagenet": (200, 400, 800, 1600),
}
FAMILIES = ("cifar10", "deepspeech2", "yolov3", "imagenet", "mixed", "cores")


@dataclass(frozen=True)
class Work:
    """A trial: ``epochs`` of ``level`` seconds on one device, and how that changes by width.

    ``params`` are its hyperparameters: what it trains and in which batches, or for cores the size
    of its work. They do not tell all of its level.
    """

    epochs: int
    level: float
    shape: tuple[tuple[int, float], ...]
    params: tuple[tuple[str, str | float], ...]


@dataclass(frozen=True)
class Instance:
    """What there is to place."""

    name: str
    devices: int
    work: tuple[Work, ...]
    price: float
    about: str


def instances(each: int, curves: dict[tuple[str, str], _curves.Family]) -> Iterator[Instance]:
    """``each`` instances of every family."""
    for family in FAMILIES:
        for k in range(each):
            yield instance(family, k, curves)


def instance(family: str, number: int, curves: dict[tuple[str, str], _curves.Family]) -> Instance:
    """Instance ``number`` of a family."""
    rng = Random(f"penstock {family} {number}")
    devices, trials = rng.choice(DEVICES), rng.choice(TRIALS)
    most = rng.choice((9, 27, 81))
    budgets = rng.choice(("equal", "hyperband", "uniform"))
    spread = rng.choice((0.1, 0.3, 0.6))
    clusters = sorted({cluster for _, cluster in curves})
    cluster = rng.choice(clusters)
    applications = sorted(name for name, where in curves if where == cluster)
    if family in PRICES and family in applications:
        applications = [family]
    price = 0.0 if family == "cores" else rng.choice(PRICES[rng.choice(applications)])
    work = []
    for _ in range(trials):
        epochs = _epochs(rng, budgets, most)
        if family == "cores":
            shape, level = _cores(rng, devices), rng.choice((0.5, 5.0, 60.0))
            params: tuple[tuple[str, str | float], ...] = (("size", level),)
        else:
            application = rng.choice(applications)
            batch = rng.choice(BATCHES[application])
            params = (("application", application), ("batch", batch))
            shape, level = _trained(curves[application, cluster], batch, devices)
        work.append(Work(epochs, level * math.exp(rng.gauss(0.0, spread)), shape, params))
    about = (
        f"{trials} trials of up to {most} epochs ({budgets}), {devices} devices of"
        f" {'CPU cores' if family == 'cores' else cluster}, a resize {price:g} s"
    )
    return Instance(f"{family}-{number}", devices, tuple(work), price, about)


def _epochs(rng: Random, budgets: str, most: int) -> int:
    if budgets == "equal":
        return most
    if budgets == "uniform":
        return rng.randint(1, most)
    rung = 1
    while rung < most and rng.random() < 1 / 3:
        rung *= 3
    return rung


def _trained(
    family: _curves.Family, batch: int, devices: int
) -> tuple[tuple[tuple[int, float], ...], float]:
    """A width that was not measured takes as long as the next narrower one that was."""
    curve = family.curve(batch, devices)
    if not curve or curve[0][0] != 1:
        raise UsageError.refuse("curves", curve[:1], "times on one device among them")
    level, seconds, shape = curve[0][1], dict(curve), []
    for width in range(1, curve[-1][0] + 1):
        shape.append((width, seconds[width] / level if width in seconds else shape[-1][1]))
    return tuple(shape), level


def _cores(rng: Random, devices: int) -> tuple[tuple[int, float], ...]:
    """Amdahl's law with a cost of every further core."""
    serial, cost = rng.choice((0.02, 0.1, 0.3)), rng.choice((0.0, 0.01, 0.03))
    return tuple(
        (width, serial + (1 - serial) / width + cost * (width - 1))
        for width in range(1, min(devices, 16) + 1)
    )
