"""The cost table: measured costs of epochs and segments, for policies and segment lengths.

For every trial and width the table keeps an exponentially weighted mean (``segment_costs.blend``).
Other costs are estimated from all of a study's trials (``study_model``): those at widths at which a
trial has not run, and those of trials that have not run at all. For a study without a measured
epoch nothing is estimated, and the caller gets None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from .group_slowdown import GroupSlowdown
from .segment_costs import (
    FIRST_OVERHEAD,
    FIRST_RESUME,
    MAX_OVERHEAD,
    SegmentCosts,
    SegmentStart,
    blend,
)
from .study_model import Expected, Pool, expected, pool, prior

#: If an estimate moved by this factor since the last plan that used it, the plan is made again.
CHANGE_FACTOR = 1.25
#: A study's pool is made again when ``StudyCosts.changes`` has grown by this factor.
POOL_GROWTH = 1.1
#: Seconds of a resize before one was measured: 17 to 100 ms by the size of the state
#: (docs/history/measured.md).
FIRST_RESIZE = 0.06
#: Least time that an epoch is taken to last (seconds), so that no ratio divides by zero.
SHORTEST_EPOCH = 1e-6


@dataclass(slots=True)
class TrialCosts:
    """Seconds per epoch of a trial, by width.

    ``means`` are the present values, and ``planned`` the values that plans use, which change only
    if a mean has moved far. ``last`` is the width of the trial's newest epoch. ``features`` are the
    numbers that distinguish its configuration.
    """

    features: tuple[float, ...]
    last: int
    means: dict[int, float] = field(default_factory=dict)
    planned: dict[int, float] = field(default_factory=dict)
    #: Widths at which only steps of a window were measured, and no epoch.
    by_steps: set[int] = field(default_factory=set)

    def revise(self, costs: dict[int, float], width: int, seconds: float) -> None:
        """Set ``costs`` at ``width`` to ``seconds``.

        Costs at widths of which only steps were measured are multiplied by the same factor.
        """
        if self.by_steps:
            factor = seconds / costs.get(width, seconds)
            widths = (other for other in self.by_steps if other in costs)
            costs.update({other: costs[other] * factor for other in widths})
        costs[width] = seconds

    @property
    def seconds(self) -> float:
        """The seconds of an epoch at the width where the trial last ran."""
        return self.means[self.last]


@dataclass(slots=True)
class StudyCosts:
    """Costs of a study's trials that have run, and means by width over all of them.

    ``changes`` counts new values in any trial's ``planned``. ``pool`` was made after ``pooled``
    changes.
    """

    trials: dict[str, TrialCosts] = field(default_factory=dict)
    widths: dict[int, float] = field(default_factory=dict)
    changes: int = 0
    pool: Pool | None = None
    pooled: int = 0
    segments: SegmentCosts = field(default_factory=SegmentCosts)
    #: Slowdown of fused groups of its trials. The field has this name in snapshots.
    company: GroupSlowdown = field(default_factory=GroupSlowdown)


@dataclass(slots=True)
class StudyFeatures:
    """Numbers that distinguish a study's trials better than some of their hyperparameters do."""

    #: The hyperparameters that the numbers replace.
    instead_of: tuple[str, ...] = ()
    #: The numbers of each trial for which they are known; and the numbers used for all others.
    trials: dict[str, tuple[float, ...]] = field(default_factory=dict)
    mean: tuple[float, ...] = ()


@dataclass(slots=True)
class CostTable:
    """Seconds per epoch by study, trial and width, and seconds of a segment and of a resize.

    ``resizes`` is the number of measured resizes. All trials of a study have equally many features.
    """

    studies: dict[str, StudyCosts] = field(default_factory=dict)
    segment_overhead: float = FIRST_OVERHEAD
    resize: float = FIRST_RESIZE
    resizes: int = 0
    #: Features of a study's trials that replace some hyperparameters, by study.
    features: dict[str, StudyFeatures] = field(default_factory=dict)

    def observe_epoch(
        self,
        study: str,
        trial: str,
        seconds: float,
        width: int,
        features: Callable[[], tuple[float, ...]] = tuple,
    ) -> bool:
        """Add one epoch's training time (seconds) on ``width`` devices.

        ``features`` returns the trial's features, and is called if the trial has not run yet.
        Returns True if the time differs from the expected one, so that the plan should be made
        again.
        """
        seconds = max(SHORTEST_EPOCH, seconds)
        study_costs = self.studies.get(study)
        own = None if study_costs is None else study_costs.trials.get(trial)
        if own is not None and width in own.planned:
            before: float | None = own.planned[width]
        else:
            before = self.seconds_at(study, trial, width, () if own is not None else features())
        if study_costs is None:
            study_costs = self.studies[study] = StudyCosts()
        first = width not in study_costs.widths  # a policy that tries widths waits for the result
        study_costs.widths[width] = blend(study_costs.widths.get(width), seconds)
        if own is None:
            own = study_costs.trials[trial] = TrialCosts(features(), width)
        own.last = width
        mean = blend(None if width in own.by_steps else own.means.get(width), seconds)
        as_planned = before is not None and 1 / CHANGE_FACTOR < mean / before < CHANGE_FACTOR
        moved = first or not as_planned
        own.revise(own.means, width, mean)
        if moved or width not in own.planned or width in own.by_steps:
            own.revise(own.planned, width, mean)
            study_costs.changes += 1
            own.by_steps.discard(width)
        return moved

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
        """Add a width window: seconds of a step by width, with ``per_epoch`` steps per epoch.

        Measured epochs take precedence over the window, and show the time of an epoch beyond its
        steps. The members of the gang took ``meeting`` seconds to meet. If they did not meet
        (``met`` is False), a resize is expected to take twice as long, since a wait of that length
        may last as long again.
        """
        if not self.resizes and meeting:
            self.resize = meeting if met else max(self.resize, 2.0 * meeting)
        if not steps:
            return
        study_costs = self.studies.setdefault(study, StudyCosts())
        own = study_costs.trials.setdefault(trial, TrialCosts(features, 1))
        base = next((w for w in (own.last, *sorted(own.means)) if w in steps and w in own.means), 0)
        for width, seconds in steps.items():
            if width not in own.means or width in own.by_steps:
                for costs in (own.means, own.planned):
                    factor = costs[base] / steps[base] if base else per_epoch
                    costs[width] = max(SHORTEST_EPOCH, factor * seconds)
                own.by_steps.add(width)
                study_costs.widths[width] = blend(study_costs.widths.get(width), own.means[width])
                study_costs.changes += 1

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
        """Add one closed segment of ``epochs`` epochs.

        ``fixed`` and ``between`` are as for ``SegmentCosts.overhead``. ``start`` says where the
        trial's state was, and ``resized`` is True if the segment began with a resize. Only segments
        that continue a trial without a wait count for the overhead.
        """
        study_costs = self.studies.get(study)
        if study_costs is None:
            study_costs = self.studies[study] = StudyCosts()
        costs = study_costs.segments
        overhead = costs.overhead(fixed, between, epochs)
        if resized:
            # The first measurement replaces the assumed value.
            old = self.resize if self.resizes else None
            self.resize = blend(old, max(0.0, overhead - self.segment_overhead))
            self.resizes += 1
        elif start is SegmentStart.NEXT:
            if overhead <= MAX_OVERHEAD:
                self.segment_overhead = blend(self.segment_overhead, overhead)
        elif start is not SegmentStart.NEW:
            costs.observe_resume(start, overhead - self.segment_overhead)

    def observe_group(self, study: str, size: int, ratio: float) -> None:
        """Add an epoch of a fused group of ``size`` trials, at least two.

        ``ratio`` is the epoch's seconds per trial divided by the seconds of an epoch alone.
        """
        self.studies.setdefault(study, StudyCosts()).company.observe(size, ratio)

    def observe_probe(self, study: str, size: int, ratio: float) -> None:
        """Add the ratio that a trainer measured with ``size`` copies of one trial."""
        self.studies.setdefault(study, StudyCosts()).company.observe_probe(size, ratio)

    def group_slowdown(self, study: str, size: int) -> float:
        """Return an epoch's expected seconds per trial in a fused group divided by seconds alone.

        ``size`` is the number of trials in the group.
        """
        study_costs = self.studies.get(study)
        return 1.0 if study_costs is None else study_costs.company.ratio(size)

    def group_slowdown_is_known(self, study: str) -> bool:
        """Return True if a fused group of the study's trials was measured or probed."""
        study_costs = self.studies.get(study)
        return study_costs is not None and bool(
            study_costs.company.ratios or study_costs.company.rehearsed
        )

    def worthwhile(self, study: str) -> int:
        """Return the size of the study's fused groups that pays best (``GroupSlowdown``)."""
        study_costs = self.studies.get(study)
        return (GroupSlowdown() if study_costs is None else study_costs.company).worthwhile()

    def resume(self, study: str, start: SegmentStart) -> float:
        """Return the cost of continuing after a wait, beyond the overhead (seconds)."""
        study_costs = self.studies.get(study)
        resumes = {} if study_costs is None else study_costs.segments.resumes
        return resumes.get(start, FIRST_RESUME[start])

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Keep estimates in the block from changing later ones, by restoring the studies' pools.

        A study's pool is made when it is first needed, and later estimates depend on that moment.
        """
        before = [
            (study_costs, study_costs.pool, study_costs.pooled)
            for study_costs in self.studies.values()
        ]
        try:
            yield
        finally:
            for study_costs, study_pool, pooled in before:
                study_costs.pool, study_costs.pooled = study_pool, pooled

    def own(self, study: str, trial: str) -> TrialCosts | None:
        """Return the measurements of ``trial`` itself; None before its first epoch."""
        study_costs = self.studies.get(study)
        return None if study_costs is None else study_costs.trials.get(trial)

    def expected(
        self, study: str, trial: str, widest: int, features: tuple[float, ...] = ()
    ) -> Expected:
        """Return the expected costs of ``trial`` on 1 to ``widest`` devices.

        ``level`` is None if no epoch of the study was measured.
        """
        study_costs = self.studies.get(study)
        if study_costs is None or not study_costs.trials:
            return prior(widest)
        study_pool = study_costs.pool
        if (
            study_pool is None
            or study_costs.changes > POOL_GROWTH * study_costs.pooled
            or len(study_pool.shape) < widest
        ):
            trials = [(own.features, own.planned) for own in study_costs.trials.values()]
            study_pool = study_costs.pool = pool(trials, max(widest, *study_costs.widths))
            study_costs.pooled = study_costs.changes
        own = study_costs.trials.get(trial)
        if own is None:
            return expected(study_pool, features, {}, widest)
        return expected(study_pool, own.features, own.planned, widest)

    def describe(self, study: str, trial: str, features: tuple[float, ...]) -> None:
        """Replace the features of a trial that has run. All trials must have equally many."""
        study_costs = self.studies.get(study)
        if study_costs is not None and trial in study_costs.trials:
            study_costs.trials[trial].features = features
            study_costs.pool = None

    def seconds_at(
        self, study: str, trial: str, width: int, features: tuple[float, ...] = ()
    ) -> float | None:
        """Return an epoch's expected seconds on ``width`` devices; None if nothing was measured."""
        costs = self.expected(study, trial, width, features)
        return None if costs.level is None else costs.level * costs.shape[-1][1]

    def forget_study(self, study: str) -> None:
        """Drop a finished study's estimates."""
        self.studies.pop(study, None)
        self.features.pop(study, None)

    def speeds(self, study: str) -> tuple[tuple[int, float], ...]:
        """Return the measured (width, seconds per epoch) pairs of ``study``, by width."""
        study_costs = self.studies.get(study)
        return () if study_costs is None else tuple(sorted(study_costs.widths.items()))
