"""Workloads as plain values: the studies that a simulation runs, and the durations of training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from optuna.distributions import FloatDistribution, distribution_to_json

from ...app.spec.space import parse_space
from ...app.spec.steps import Steps, expanded
from ...profiling.costs.fitting import fit
from ...profiling.costs.group_slowdown import GroupSlowdown
from ...profiling.costs.interference import SharingTable
from ...profiling.costs.segment_costs import SegmentStart
from ...profiling.costs.study_model import Expected
from ...profiling.costs.table import CostTable
from ...profiling.costs.throughput import Measured, Shape, packed_allocation
from ...scheduler.model.decisions import Dispatch, Segment
from ...scheduler.model.study import Code, Params, Scalar, StrategySpec, StudySpec, number_of
from ...scheduler.model.trial_group import Entry, TrialGroup
from ...scheduler.strategies.full import FullBudget
from ...scheduler.strategies.registry import AnyStrategy, make_strategy
from .devices.device_memory import UNKNOWN, MemoryNeed
from .devices.transport import OVERHEAD

#: Number of training steps in an epoch for which the workload states none.
STEPS_PER_EPOCH = 200
#: The name of the hyperparameter that is a step function of the epoch, in studies whose trials have
#: epochs in common.
PIECES = "x"
#: The search space of studies in which no trial depends on a hyperparameter.
SPACE = (("x", distribution_to_json(FloatDistribution(0.0, 1.0))),)


@dataclass(frozen=True, slots=True)
class TrialWork:
    """The durations and results of one trial's simulated training."""

    #: Seconds of an epoch on one device.
    level: float
    #: Pairs of a width (number of devices) and the time of an epoch divided by the time on one
    #: device. All widths from 1 on are present. Devices beyond the largest width bring no gain.
    shape: Shape
    #: The number of epochs for which the trial is trained, if its ``StudyWork`` has ``budgets``.
    epochs: int = 0
    #: Seconds of the trial's first epochs on one device, in order. Later epochs take ``level``
    #: seconds.
    levels: tuple[float, ...] = ()
    #: The study's metric after each of the trial's first epochs, in order. Later epochs have the
    #: last of these values.
    values: tuple[float, ...] = ()
    #: The hyperparameters of the trial that help to predict its ``level``.
    params: Params = ()
    #: Number of steps of an epoch.
    steps: int = STEPS_PER_EPOCH
    #: The trial's memory need.
    memory: MemoryNeed = UNKNOWN

    def seconds(self, epoch: int, width: int) -> float:
        """Return the seconds that ``epoch`` (from 1) takes on ``width`` devices."""
        level = self.levels[epoch - 1] if epoch <= len(self.levels) else self.level
        return level * self.shape[min(width, len(self.shape)) - 1][1]

    def value(self, epoch: int) -> float:
        """Return the metric after ``epoch`` (from 1), or 0 if the trial has no values."""
        return self.values[min(epoch, len(self.values)) - 1] if self.values else 0.0


@dataclass(frozen=True, slots=True)
class StudyWork:
    """A study that arrives after ``arrives`` simulated seconds.

    ``trials[k]`` is the work of trial number k. With ``budgets``, each trial is trained for its own
    number of epochs, and the strategy of ``spec`` is not used.
    """

    spec: StudySpec
    trials: tuple[TrialWork, ...]
    arrives: float = 0.0
    budgets: bool = False
    #: The slowdown of fused groups of the study's trials.
    group_slowdown: GroupSlowdown = field(default_factory=GroupSlowdown)


@dataclass(frozen=True)
class Workload:
    """A set of studies, and the costs of running the studies on simulated devices."""

    name: str
    studies: tuple[StudyWork, ...]
    #: Seconds that a trial needs to continue on another number of devices (a resize).
    resize: float = 0.0
    #: The overhead of a segment in seconds: dispatch to first step, plus last step to report.
    overhead: float = OVERHEAD
    #: The kind of device on which the times were measured; empty if the times hold on any kind.
    kind: str = ""
    #: A description for readers of the results.
    about: str = ""
    #: Sentences about values that were assumed because they were not measured.
    assumed: tuple[str, ...] = ()
    #: The slowdown of an epoch with 2, 3, ... trials on its device: its time divided by its time
    #: alone.
    sharing: tuple[float, ...] = ()

    def slowdown(self, at_work: int) -> float:
        """Return the slowdown of an epoch if ``at_work`` trials share its device.

        The slowdown is the epoch's time divided by its time alone, and comes from ``sharing``. For
        more trials than ``sharing`` covers, the slowdown grows in proportion to the number of
        trials.
        """
        factors = (1.0, *self.sharing)
        return factors[min(at_work, len(factors)) - 1] * max(1.0, at_work / len(factors))

    @cached_property
    def by_id(self) -> dict[str, StudyWork]:
        """The work of each study, by the study's id."""
        return {study.spec.id: study for study in self.studies}

    @property
    def enqueued(self) -> dict[str, tuple[Params, ...]]:
        """The hyperparameters of each study's trials, by study id.

        Trials without hyperparameters are left out.
        """
        return {
            name: tuple(trial.params for trial in study.trials if trial.params)
            for name, study in self.by_id.items()
        }

    def trial(self, study: str, trial: str) -> TrialWork:
        """Return the work of the trial with the id ``trial`` in the study with the id ``study``.

        A forked trial, whose number is beyond the trials of the workload, has the work of one of
        these.
        """
        trials = self.by_id[study].trials
        return trials[number_of(trial) % len(trials)]

    def group_slowdown(self, study: str, size: int) -> float:
        """Return the slowdown of an epoch in a fused group of ``size`` trials of a study.

        A fused group is a set of trials trained together in one pass. The slowdown is the time per
        trial in the group, divided by the time of a trial alone.
        """
        return self.by_id[study].group_slowdown.ratio(size)

    def memory(self, segment: Segment) -> MemoryNeed:
        """Return the memory need of the trial that a segment trains."""
        return self.trial(segment.trial.rpartition("-")[0], segment.trial).memory

    def peaks(self, kinds: Collection[str]) -> SharingTable:
        """Return a table in which the engine finds the peak memory of each study's largest trial.

        ``kinds`` are the kinds of devices in the table.
        """
        table = SharingTable()
        for study in self.studies:
            largest = max(trial.memory.peak() for trial in study.trials)
            for kind in kinds:
                table.of(study.spec.id, kind).memory = largest
        return table

    def strategy(self, spec: StudySpec) -> AnyStrategy:
        """Return a new strategy for the study of this workload that ``spec`` describes."""
        study = self.by_id[spec.id]
        if not study.budgets:
            return make_strategy(spec)
        budgets = tuple(trial.epochs for trial in study.trials)
        return Budgets(spec.n_trials, max(budgets), budgets=budgets)


@dataclass
class SimulatedTraining:
    """The ``SimulatedWork`` of a workload: training takes as long as the workload states."""

    workload: Workload

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """Return the seconds of the epoch on the devices of the segment, and its metric."""
        trial = self.workload.trial(spec.id, dispatch.segment.trial)
        return trial.seconds(epoch, len(dispatch.segment.members)), trial.value(epoch)

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """Return the seconds of a resize, which are the same for all trials of a workload."""
        return self.workload.resize

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        """Return the number of steps in an epoch of the trial."""
        return self.workload.trial(spec.id, dispatch.segment.trial).steps

    def slowdown(self, at_work: int) -> float:
        """Return the slowdown of an epoch if ``at_work`` trials share a device."""
        return self.workload.slowdown(at_work)


@dataclass(slots=True)
class Budgets(FullBudget):
    """A strategy that trains each trial for its own number of epochs and never stops a trial."""

    budgets: tuple[int, ...] = ()

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Return a group that trains each trial up to its own number of epochs."""
        return tuple(Entry(trial, self.budgets[number_of(trial)]) for trial in trials)


@dataclass
class KnownCosts(CostTable):
    """A cost table that knows the times of a workload from the start and learns nothing.

    With this table, policies are compared without the effect of learning. ``beliefs`` has, by
    trial, a factor by which the estimate for the trial is wrong. ``error`` is the uncertainty that
    the table states (standard deviation of the logarithm).
    """

    workload: Workload = field(default_factory=lambda: Workload("nothing", ()))
    beliefs: dict[str, float] = field(default_factory=dict)
    error: float = 0.0

    def observe_epoch(
        self,
        study: str,
        trial: str,
        seconds: float,
        width: int,
        features: Callable[[], tuple[float, ...]] = tuple,
    ) -> bool:
        """Do nothing, since the workload's times are known."""
        return False

    def observe_group(self, study: str, size: int, ratio: float) -> None:
        """Do nothing, since the slowdowns of fused groups are known."""

    def group_slowdown(self, study: str, size: int) -> float:
        """Return the slowdown of a fused group of ``size`` trials, as the workload states it."""
        return self.workload.group_slowdown(study, size)

    def group_slowdown_is_known(self, study: str) -> bool:
        """Return True, since the workload states the slowdown of fused groups."""
        return True

    def worthwhile(self, study: str) -> int:
        """Return the size of a fused group that is worthwhile by the ratios in the workload.

        The result is 1 if the workload states no ratios for the study.
        """
        ratios = self.workload.by_id[study].group_slowdown.ratios
        return GroupSlowdown(rehearsed=ratios).worthwhile() if ratios else 1

    def observe_segment(
        self,
        study: str,
        fixed: float,
        between: float,
        epochs: int,
        *,
        start: SegmentStart,
        resized: bool,
    ) -> None:
        """Do nothing, since the workload's times are known."""

    def observe_window(
        self,
        study: str,
        trial: str,
        steps: Mapping[int, float],
        per_epoch: int,
        features: tuple[float, ...] = (),
        *,
        meeting: float,
        met: bool,
    ) -> None:
        """Do nothing, since the workload's times are known."""

    def expected(
        self, study: str, trial: str, widest: int, features: tuple[float, ...] = ()
    ) -> Expected:
        """Return the workload's times for a trial on one to ``widest`` devices.

        The time on one device is multiplied by the factor that ``beliefs`` has for the trial.
        """
        trial_work = self.workload.trial(study, trial)
        level = trial_work.level * self.beliefs.get(trial, 1.0)
        shape = trial_work.shape[:widest]
        return Expected(level, shape, self.error, shape, shape)


def shape_of(points: Iterable[tuple[int, float]], widest: int | None = None) -> tuple[float, Shape]:
    """Return an epoch's seconds on one device, and the shape of a curve of (width, seconds) points.

    The shape has the seconds at each width, divided by the seconds on one device. Widths in
    ``points`` keep their values. The values of other widths, up to the largest in ``points`` (or
    ``widest``), come from the fitted model (``profiling.costs.fitting``).
    """
    seconds_of = dict(points)
    last = max(seconds_of) if widest is None else widest
    if all(width in seconds_of for width in range(1, last + 1)):
        seconds = [seconds_of[width] for width in range(1, last + 1)]
    else:
        model = fit(Measured(packed_allocation(width), each) for width, each in seconds_of.items())
        seconds = [seconds_of.get(each.place.width, each.seconds) for each in model.curve(last)]
    return seconds[0], tuple((at, each / seconds[0]) for at, each in enumerate(seconds, start=1))


def study_spec(
    name: str,
    trials: int,
    width: int,
    *,
    strategy: StrategySpec | None = None,
    number: int = 0,
    params: Iterable[Params] = (),
    pieces: Mapping[int, Sequence[Scalar]] | None = None,
    fuses: bool = False,
) -> StudySpec:
    """Return the spec of a simulated study of ``trials`` trials on at most ``width`` devices each.

    The study minimises ``loss``, and its id contains ``number``. The workload determines the course
    of the trials, whatever their hyperparameters. ``params`` are the hyperparameters of all trials.
    ``pieces`` has the values of a step function from each epoch on, for trials that have epochs in
    common. With ``fuses``, trials in one lane may be trained together.
    """
    values: dict[str, dict[Scalar, None]] = {}
    for name_of, value in (pair for each in params for pair in each):
        values.setdefault(name_of, {})[value] = None
    space: Mapping[str, Any] = {parameter: list(each) for parameter, each in values.items()}
    if pieces:
        steps = Steps({epoch: list(each) for epoch, each in pieces.items()})
        space = expanded({PIECES: steps}, "empty", None)
    return StudySpec(
        id=f"s{number}",
        name=name,
        contract="torch" if fuses else "empty",
        code=Code("simulated:work", "", ""),
        metric="loss",
        direction="minimize",
        n_trials=trials,
        space=parse_space(space) if space else SPACE,
        strategy=strategy or StrategySpec("full", 1),
        shards=width,
        max_width=width,
        seeding="shared" if pieces else "trial",
        fuse="auto" if fuses else "off",
    )


def widest(trials: Sequence[TrialWork]) -> int:
    """Return the largest number of devices from which any of the trials gains."""
    return max(len(trial.shape) for trial in trials)
