"""Runs studies for real, reads their placement from the ledger, and simulates them.

Twelve trials of unequal cost under a full budget, and 27 under synchronous halving, on digits and
on MNIST; and five trials that do not scale. Data is read once per trainer, so training and
placement are measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from typing import Any

import penstock
import torch
from penstock.app.host.settings import Settings
from penstock.app.ledger import codec
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import EpochRow
from penstock.extensions.simulation.devices.transport import OVERHEAD
from penstock.extensions.simulation.simulator import simulate
from penstock.extensions.simulation.workload import STEPS_PER_EPOCH
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import WidthsMeasured
from penstock.scheduler.model.study import StrategySpec, StudySpec
from penstock.scheduler.policies.planner.bounds import fluid_bound, whole_epochs_bound
from penstock.scheduler.policies.planner.width_plan import Shape, curve_of
from penstock.scheduler.strategies.base import rungs

from testkit.data import mnist_is_here
from testkit.digits import DigitsNet

from ..lib.lenet import LeNet

DEVICES = 2
#: The workload that does not scale. Its epochs are long enough to measure widths.
FLAT = "digits.flat"
MIN_EPOCHS, MAX_EPOCHS, ETA = 1, 9, 3


@cache
def _digits() -> penstock.Data:
    return DigitsNet({}).data()


class Digits(DigitsNet):
    """Wide or narrow: an epoch of the widest takes many times as long as one of the narrowest."""

    def data(self):
        return _digits()


class Spectral(Digits):
    """Is no faster on two devices: each has the singular values of the whole gradient to find."""

    def clip(self, model):
        for parameter in model.parameters():
            if parameter.grad.dim() == 2:
                norm = torch.linalg.matrix_norm(parameter.grad, 2)
                parameter.grad.div_(norm.clamp(min=1.0))


SPACES: dict[Any, dict[str, Any]] = {
    Digits: {
        "lr": penstock.Float(1e-3, 1e-1, log=True),
        "hidden": penstock.Int(64, 1024, log=True),
        "dropout": penstock.Float(0.0, 0.5),
        "batch_size": [64],
    },
    Spectral: {
        "lr": penstock.Float(1e-3, 1e-1, log=True),
        "hidden": penstock.Int(384, 448),
        "dropout": [0.1],
        "batch_size": [64],
    },
    LeNet: {
        "lr": penstock.Float(1e-3, 1e-1, log=True),
        "momentum": penstock.Float(0.5, 0.95),
        "examples": penstock.Int(300, 3000, log=True),
        "batch_size": [64],
    },
}


@dataclass(frozen=True)
class Workload:
    """A study: ``trials`` of ``code`` under ``strategy``."""

    code: Any
    strategy: StrategySpec
    trials: int


@dataclass(frozen=True)
class Ran:
    """A study that ran: its spec, seconds from submission to end, and its accepted epochs.

    ``epochs`` are by trial number, in the order of acceptance. ``windows`` is how many width
    windows measured more than one width.
    """

    spec: StudySpec
    makespan: float
    epochs: tuple[tuple[int, EpochRow], ...]
    windows: int

    @property
    def finals(self) -> dict[int, tuple[int, str]]:
        """By trial number the last epoch and the digest of the state after it."""
        return {number: (row.epoch, row.state_hash) for number, row in self.epochs}


def workloads(quick: bool) -> dict[str, Workload]:
    """By name; MNIST's are left out, with a word, where its files are not here."""
    codes: dict[str, Any] = {"digits": Digits}
    if mnist_is_here():
        codes["mnist"] = LeNet
    full = penstock.FullBudget(3 if quick else 8)
    most = 3 if quick else MAX_EPOCHS
    halving = penstock.SuccessiveHalving(min_epochs=MIN_EPOCHS, max_epochs=most, eta=ETA)
    found = {}
    for name, code in codes.items():
        found[f"{name}.unequal"] = Workload(code, full, 12)
        found[f"{name}.sha27"] = Workload(code, halving, 9 if quick else 27)
    found[FLAT] = Workload(Spectral, full, 5)
    return found


def run(settings: Settings, workload: Workload, widest: int) -> Ran:
    """Have the study run on the two devices of ``settings``, each trial on ``widest`` at most."""
    study = penstock.create_study(
        metric="accuracy",
        direction="maximize",
        sampler="random",
        strategy=workload.strategy,
        seed=3,
        resources=penstock.Resources(max_width=widest, shards=DEVICES),
    )
    study.optimize(
        workload.code,
        SPACES[workload.code],
        workload.trials,
        show_progress=False,
        devices=settings.devices,
    )
    reader = Reader(settings.ledger_url)
    row = reader.study(study.id)
    assert row.finished_at is not None
    numbers = {trial.id: trial.number for trial in reader.trials(study.id)}
    epochs = tuple((numbers[each.trial], each) for each in reader.epochs(study.id))
    measured = [event for _, event in reader.of_trials(study.id, WidthsMeasured)]
    windows = sum(len(event.seconds) > 1 for event in measured)
    return Ran(
        codec.spec_from_json(row.spec_json), row.finished_at - row.created_at, epochs, windows
    )


@dataclass(frozen=True)
class Costs:
    """The measured costs of a study, to simulate it and to bound it.

    ``level`` is the seconds of an epoch on one device by trial number, and ``shape`` how they
    change with the width. ``values`` are the metrics by (trial number, epoch). ``gaps`` are the
    seconds on a device before an epoch, by kind: ``first`` of a trial, ``resized``, or ``next``.
    """

    level: Mapping[int, float]
    shape: Shape
    values: Mapping[tuple[int, int], float]
    gaps: Mapping[str, float]

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """As ``extensions.simulation.devices.transport.SimulatedWork``."""
        factor = dict(self.shape)[len(dispatch.segment.members)]
        seconds = self.level[dispatch.number] * factor
        seconds += self.gaps["first" if epoch == 1 else "next"]
        if epoch == dispatch.segment.first:
            seconds -= min(OVERHEAD, self.gaps["next"])  # the simulated transport adds it
        return seconds, self.values[dispatch.number, epoch]

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """As ``extensions.simulation.devices.transport.SimulatedWork``."""
        return max(0.0, self.gaps["resized"] - self.gaps["next"])

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        """As many for all."""
        return STEPS_PER_EPOCH

    def slowdown(self, at_work: int) -> float:
        """Devices have one slot."""
        return 1.0


def costs(runs: Sequence[Ran]) -> Costs:
    """Medians over ``runs`` of one study, which need not have had the same policy."""
    seconds: dict[tuple[int, int], list[float]] = {}
    values: dict[tuple[int, int], float] = {}
    for ran in runs:
        for number, row in ran.epochs:
            seconds.setdefault((number, row.width), []).append(row.seconds)
            values[number, row.epoch] = row.value
    middle = {place: median(found) for place, found in seconds.items()}
    numbers = {number for number, _ in middle}
    both = [middle[n, 2] / middle[n, 1] for n in numbers if {(n, 1), (n, 2)} <= middle.keys()]
    shape: Shape = ((1, 1.0), (2, median(both))) if both else ((1, 1.0), (2, 1.0))
    level = {n: middle.get((n, 1)) or middle[n, 2] / shape[1][1] for n in numbers}
    return Costs(level, shape, values, _gaps(runs))


def _gaps(runs: Iterable[Ran]) -> dict[str, float]:
    found: dict[str, list[float]] = {"first": [], "resized": [], "next": []}
    for ran in runs:
        free: dict[str, float] = {}
        widths: dict[int, int] = {}
        for number, row in ran.epochs:
            devices = [device for device, _ in row.members]
            before = [free[device] for device in devices if device in free]
            kind = "first" if number not in widths else "next"
            if widths.setdefault(number, row.width) != row.width:
                kind = "resized"
            # A gang waits for its last member, and that is no cost of its own.
            if len(before) == len(devices):
                found[kind].append(max(0.0, row.at - row.seconds - max(before)))
            widths[number] = row.width
            free |= dict.fromkeys(devices, row.at)
    return {kind: median(spans) if spans else OVERHEAD for kind, spans in found.items()}


def foretold(ran: Ran, known: Costs, policy: str) -> float:
    """The makespan in seconds that the simulator predicts for this study under ``policy``."""
    devices = [Device(f"d{k}", "n", "cpu", (k,), None) for k in range(DEVICES)]
    spec = replace(ran.spec, id="s", name="s")
    return simulate([spec], devices, known, policy=policy).makespan


def bound(ran: Ran, known: Costs) -> float:
    """Lower bound of the makespan (seconds); of halving the sum of its rungs' bounds.

    That sum holds where rungs wait for each other: exact early promotion may end before it.
    """
    last = {number: epoch for number, (epoch, _) in ran.finals.items()}
    strategy = ran.spec.strategy
    assert strategy.max_epochs is not None
    ends: tuple[int, ...] = (strategy.max_epochs,)
    if strategy.name == "halving":
        ends = rungs(strategy.min_epochs, strategy.max_epochs, strategy.eta)
    total, before = 0.0, 0
    for end in ends:
        work = [
            (end - before, known.level[number], known.shape)
            for number, epochs in last.items()
            if epochs >= end
        ]
        hull = curve_of(known.shape, DEVICES).hull
        fluid = fluid_bound([(n * level, hull) for n, level, _ in work], DEVICES)
        total += max(fluid, whole_epochs_bound(work, DEVICES))
        before = end
    return total
