"""A workload: the studies that a simulation runs, as plain values, and what training them takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from optuna.distributions import FloatDistribution, distribution_to_json

from ...profiling.costs.fitting import fit
from ...profiling.costs.study_model import Expected
from ...profiling.costs.table import CostTable
from ...profiling.costs.throughput import Measured, Shape, packed
from ...scheduler.model.decisions import Dispatch
from ...scheduler.model.study import Code, Params, Scalar, StrategySpec, StudySpec, number_of
from ...scheduler.model.trial_group import Entry, TrialGroup
from ...scheduler.strategies.base import Strategy
from ...scheduler.strategies.full import FullBudget
from ...scheduler.strategies.registry import make_strategy
from ..spec.space import parse_space
from .simulator import OVERHEAD

#: The one parameter of studies whose trials do not depend on any.
SPACE = (("x", distribution_to_json(FloatDistribution(0.0, 1.0))),)


@dataclass(frozen=True, slots=True)
class TrialWork:
    """What training one trial takes and gives.

    ``level`` is seconds of an epoch on one device and ``shape`` how that changes with the width: it
    has every width from 1 on, and beyond its widest more devices gain nothing. ``epochs`` is its
    budget where the study has budgets. ``levels`` and ``values`` are seconds on one device and the
    study's metric of its epochs, in order; later ones take ``level`` and have the last value.
    ``params`` are its hyperparameters, as far as they say something of its level.
    """

    level: float
    shape: Shape
    epochs: int = 0
    levels: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    params: Params = ()

    def seconds(self, epoch: int, width: int) -> float:
        """Seconds that ``epoch`` (1-based) takes on ``width`` devices."""
        level = self.levels[epoch - 1] if epoch <= len(self.levels) else self.level
        return level * self.shape[min(width, len(self.shape)) - 1][1]

    def value(self, epoch: int) -> float:
        """The metric after ``epoch``; 0 where no value matters."""
        return self.values[min(epoch, len(self.values)) - 1] if self.values else 0.0


@dataclass(frozen=True, slots=True)
class StudyWork:
    """A study: it arrives after so many seconds, and trial number k is ``trials[k]``.

    ``budgets``: each trial is trained for its own number of epochs, whatever the strategy.
    """

    spec: StudySpec
    trials: tuple[TrialWork, ...]
    arrives: float = 0.0
    budgets: bool = False


@dataclass(frozen=True)
class Workload:
    """Studies, and seconds of a resize and of a segment's beginning.

    ``kind`` is the kind of device that its times are of, empty where they are of any; ``about``
    says what else is known of it, ``assumed``, in sentences, what of it was not measured.
    ``sharing``: how many times as long an epoch takes with 2, 3, ... trials on its device.
    """

    name: str
    studies: tuple[StudyWork, ...]
    resize: float = 0.0
    overhead: float = OVERHEAD
    kind: str = ""
    about: str = ""
    assumed: tuple[str, ...] = ()
    sharing: tuple[float, ...] = ()

    def stretch(self, at_work: int) -> float:
        """How many times as long an epoch takes as one of ``at_work`` trials on its device.

        From ``sharing``, and for more trials than it has in proportion to their number.
        """
        known = (1.0, *self.sharing)
        return known[min(at_work, len(known)) - 1] * max(1.0, at_work / len(known))

    @cached_property
    def by_id(self) -> dict[str, StudyWork]:
        """Its studies by the id of their spec."""
        return {study.spec.id: study for study in self.studies}

    @property
    def enqueued(self) -> dict[str, tuple[Params, ...]]:
        """The hyperparameters of each study's trials, by its id; none where trials have none."""
        return {
            name: tuple(trial.params for trial in study.trials if trial.params)
            for name, study in self.by_id.items()
        }

    def trial(self, study: str, trial: str) -> TrialWork:
        """That of a trial by id; one that was forked has that of an earlier one, in turns."""
        trials = self.by_id[study].trials
        return trials[number_of(trial) % len(trials)]

    def strategy(self, spec: StudySpec) -> Strategy:
        """The strategy of one of its studies, fresh."""
        study = self.by_id[spec.id]
        if not study.budgets:
            return make_strategy(spec)
        budgets = tuple(trial.epochs for trial in study.trials)
        return Budgets(spec.n_trials, max(budgets), budgets=budgets)


@dataclass
class Training:
    """``simulate``'s ``Work``: training that takes what the workload says."""

    workload: Workload

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """Seconds on the segment's devices, and the metric."""
        trial = self.workload.trial(spec.id, dispatch.segment.trial)
        return trial.seconds(epoch, len(dispatch.segment.members)), trial.value(epoch)

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """The workload's price."""
        return self.workload.resize

    def stretch(self, at_work: int) -> float:
        """As the workload says."""
        return self.workload.stretch(at_work)


@dataclass(slots=True)
class Budgets(FullBudget):
    """One TrialGroup whose trials have a budget each."""

    budgets: tuple[int, ...] = ()

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Each to its own end."""
        return tuple(Entry(trial, self.budgets[number_of(trial)]) for trial in trials)


@dataclass
class KnownCosts(CostTable):
    """A cost table that knows the workload, or (``beliefs``, factors) is wrong about some trials.

    For policies that are to be compared without what they have to learn. ``error`` is how far off
    it says it may be (standard deviation of the logarithm).
    """

    workload: Workload = field(default_factory=lambda: Workload("nothing", ()))
    beliefs: dict[str, float] = field(default_factory=dict)
    error: float = 0.0

    def saw_epoch(
        self, study: str, trial: str, seconds: float, width: int, features: tuple[float, ...] = ()
    ) -> bool:
        """It is known."""
        return False

    def saw_segment(self, seconds: float, training: float, *, resized: bool) -> None:
        """It is known."""

    def expected(
        self, study: str, trial: str, widest: int, features: tuple[float, ...] = ()
    ) -> Expected:
        """As in the workload, times the error."""
        known = self.workload.trial(study, trial)
        level = known.level * self.beliefs.get(trial, 1.0)
        shape = known.shape[:widest]
        return Expected(level, shape, self.error, shape)


def shape_of(points: Iterable[tuple[int, float]], widest: int | None = None) -> tuple[float, Shape]:
    """Seconds of an epoch on one device, and the shape, of a curve of (width, seconds).

    Widths that the curve has are as it says, the others up to its widest (or ``widest``) by the
    fitted model (``profiling.costs.fitting``).
    """
    known = dict(points)
    last = max(known) if widest is None else widest
    if all(width in known for width in range(1, last + 1)):
        seconds = [known[width] for width in range(1, last + 1)]
    else:
        model = fit(Measured(packed(width), each) for width, each in known.items())
        seconds = [known.get(each.place.width, each.seconds) for each in model.curve(last)]
    return seconds[0], tuple((at, each / seconds[0]) for at, each in enumerate(seconds, start=1))


def study_spec(
    name: str,
    trials: int,
    width: int,
    *,
    strategy: StrategySpec | None = None,
    number: int = 0,
    params: Iterable[Params] = (),
) -> StudySpec:
    """A study of so many trials, each on at most ``width`` devices; ``number`` is part of its id.

    It minimises ``loss``, and its trials are what the workload says, whatever their parameters:
    ``params`` are all that there are.
    """
    values: dict[str, dict[Scalar, None]] = {}
    for name_of, value in (pair for each in params for pair in each):
        values.setdefault(name_of, {})[value] = None
    drawn = {parameter: list(each) for parameter, each in values.items()}
    return StudySpec(
        id=f"s{number}",
        name=name,
        contract="empty",
        code=Code("simulated:work", "", ""),
        metric="loss",
        direction="minimize",
        n_trials=trials,
        space=parse_space(drawn) if drawn else SPACE,
        strategy=strategy or StrategySpec("full", 1),
        shards=width,
        max_width=width,
    )


def widest(trials: Sequence[TrialWork]) -> int:
    """The most devices that any of these trials gains from."""
    return max(len(trial.shape) for trial in trials)
