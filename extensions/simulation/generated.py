"""Generates workloads: trials with speed curves of real trainings, in studies that come in bursts.

The workloads are reproducible: instance k of a family depends only on ``Random(f"penstock {family}
{k}")``. The speed curves are the fits to measured trainings, including node boundaries, in
``profiling.costs.reference_curves``. The family ``cores`` has synthetic curves for CPU cores, whose
efficiency falls with every further core.

Studies arrive in bursts, as jobs do in published traces of clusters. In Helios's cluster Venus (Hu
et al., SC 2021), the variance of the number of arrivals in ten minutes is 15.4 times its mean; the
simulator of Lucid (Hu et al., ASPLOS 2023) uses the same intervals. For bursts with exponential
gaps and geometric sizes B, that ratio is E[B^2] / E[B] = 2 E[B] - 1. So a burst has 8.2 studies on
average.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from ...base.errors import UsageError
from ...profiling.costs.reference_curves import Family, fitted
from ...profiling.costs.throughput import Shape
from ...scheduler.model.study import Params
from .workload import StudyWork, TrialWork, Workload, shape_of, study_spec, widest

Curves = Mapping[tuple[str, str], Family]

#: Numbers of devices from which an instance draws, some of them odd.
DEVICES = (4, 5, 7, 8, 11, 16, 16, 24, 32, 33, 48, 64)
TRIALS = (4, 6, 8, 9, 12, 16, 27, 27, 40, 60, 81, 120, 200)
#: Seconds of a resize (continuing a trial on another number of devices), by application. Larger
#: models take longer. Pollux assumes 15 to 250 s.
PRICES = {
    "cifar10": (0.0, 0.05, 5.0, 25.0),
    "deepspeech2": (0.0, 0.05, 15.0, 60.0),
    "yolov3": (0.0, 0.1, 30.0, 120.0),
    "imagenet": (0.0, 0.5, 60.0, 250.0),
}
#: Global batch sizes (examples), by application.
BATCHES = {
    "cifar10": (128, 256, 512, 1024),
    "deepspeech2": (20, 40, 80, 160),
    "yolov3": (8, 16, 32, 64),
    "imagenet": (200, 400, 800, 1600),
}
FAMILIES = ("cifar10", "deepspeech2", "yolov3", "imagenet", "mixed", "cores")
#: The mean number of studies in a burst. The module's docstring derives this number.
BURST = 8.2
#: The most studies of a generated workload. A larger number is most likely a typing error.
MAX_COUNT = 1_000
#: The load: device time that all trials need on one device each, divided by the device time that is
#: available while the studies arrive.
LOAD = 0.7


@dataclass(frozen=True)
class Instance:
    """A set of trials to place on a number of devices.

    ``price`` is the seconds of a resize. ``about`` describes the random draw in words.
    """

    name: str
    devices: int
    work: tuple[TrialWork, ...]
    price: float
    about: str


def generated(family: str, devices: int, *, seed: int = 0, count: int = 1) -> Workload:
    """Return a workload of ``count`` studies of a family, which arrive in bursts.

    ``devices`` is the number of devices for which the trials and the load are drawn. Equal
    arguments give equal workloads.

    Raises:
        UsageError: ``family`` is not in ``FAMILIES``, or ``count`` is not from 1 to ``MAX_COUNT``.
    """
    if family not in FAMILIES:
        raise UsageError.refuse("generated", family, ", ".join(FAMILIES))
    if not 1 <= count <= MAX_COUNT:
        raise UsageError.refuse("count", count, f"a whole number from 1 to {MAX_COUNT}")
    rng = Random(f"penstock {family} seed {seed}")  # noqa: S311 - a workload is no secret
    sampled = [_sampled(rng, family, devices, rng.choice(TRIALS), fitted()) for _ in range(count)]
    total = sum(trial.epochs * trial.level for work, _, _ in sampled for trial in work)
    gap = total / count / (devices * LOAD)
    arrives, burst_left, studies = 0.0, _burst(rng), []
    for number, (work, _, _) in enumerate(sampled):
        if burst_left == 0:
            arrives, burst_left = arrives + rng.expovariate(1 / (gap * BURST)), _burst(rng)
        burst_left -= 1
        spec = study_spec(
            f"{family}-{number}",
            len(work),
            widest(work),
            number=number,
            params=[trial.params for trial in work],
        )
        studies.append(StudyWork(spec, work, arrives, budgets=True))
    return Workload(f"generated:{family} (seed {seed})", tuple(studies), resize=sampled[0][1])


def _burst(rng: Random) -> int:
    """Return the number of studies in a burst: a geometric random number of at least 1."""
    return 1 + int(math.log(1 - rng.random()) / math.log(1 - 1 / BURST))


def instances(each: int, curves: Curves) -> Iterator[Instance]:
    """Yield the first ``each`` instances of every family, with the speed curves ``curves``."""
    for family in FAMILIES:
        for k in range(each):
            yield instance(family, k, curves)


def instance(family: str, number: int, curves: Curves) -> Instance:
    """Return the instance of a family with this number, with speed curves from ``curves``."""
    rng = Random(f"penstock {family} {number}")  # noqa: S311 - a workload is no secret
    devices, trials = rng.choice(DEVICES), rng.choice(TRIALS)
    work, price, about = _sampled(rng, family, devices, trials, curves)
    return Instance(f"{family}-{number}", devices, work, price, about)


def _sampled(
    rng: Random, family: str, devices: int, trials: int, curves: Curves
) -> tuple[tuple[TrialWork, ...], float, str]:
    """Return random trials of a family, the seconds of a resize, and a description of the draw."""
    most = rng.choice((9, 27, 81))
    budgets = rng.choice(("equal", "hyperband", "uniform"))
    deviation = rng.choice((0.1, 0.3, 0.6))
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
            params: Params = (("size", level),)
        else:
            application = rng.choice(applications)
            batch = rng.choice(BATCHES[application])
            params = (("application", application), ("batch", batch))
            shape, level = _trained(curves[application, cluster], batch, devices)
        level *= math.exp(rng.gauss(0.0, deviation))
        work.append(TrialWork(level, shape, epochs, params=params))
    about = (
        f"{trials} trials of up to {most} epochs ({budgets}), {devices} devices of"
        f" {'CPU cores' if family == 'cores' else cluster}, a resize {price:g} s"
    )
    return tuple(work), price, about


def _epochs(rng: Random, budgets: str, most: int) -> int:
    if budgets == "equal":
        return most
    if budgets == "uniform":
        return rng.randint(1, most)
    rung = 1
    while rung < most and rng.random() < 1 / 3:
        rung *= 3
    return rung


def _trained(family: Family, batch: int, devices: int) -> tuple[Shape, float]:
    level, shape = shape_of(family.curve(batch, devices))
    return shape, level


def _cores(rng: Random, devices: int) -> Shape:
    """Return a random speed curve for CPU cores: Amdahl's law plus a cost for each further core."""
    serial, cost = rng.choice((0.02, 0.1, 0.3)), rng.choice((0.0, 0.01, 0.03))
    return tuple(
        (width, serial + (1 - serial) / width + cost * (width - 1))
        for width in range(1, min(devices, 16) + 1)
    )
