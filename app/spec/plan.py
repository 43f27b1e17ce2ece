"""The part of a study that ``create_study`` fixes, before its code, space and size are known."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ...scheduler.model.study import Objective, StrategySpec, StudySpec
from .options import GROUPS, Limits, Resources, Share, SystemTuning, group_of
from .sampler_options import NOT_OPTUNAS
from .space import Space


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """The checked arguments of ``create_study``: a study without its code, space and size."""

    #: The direction of the first objective.
    direction: str
    #: The metric of the first objective. It is None if an objective returns its value without a
    #: name.
    metric: str | None
    #: The name of the sampler. ``sampler_options`` contains the sampler's options as JSON.
    sampler: str
    sampler_options: str
    #: The strategy. None means the default for the contract of the code and the size of the study.
    strategy: StrategySpec | None
    seed: int
    #: One of ``scheduler.model.study.SEEDING``.
    seeding: str
    #: The number of trials of each configuration.
    replicates: int
    #: One of ``scheduler.model.study.FUSE``.
    fuse: str
    #: The objectives after the first.
    further: tuple[Objective, ...]
    #: The constraints: pairs of a metric and its highest allowed value.
    constraints: tuple[tuple[str, float], ...]
    #: The groups of options, checked.
    resources: Resources
    limits: Limits
    system: SystemTuning
    share: Share
    #: The environment (the Python and the system) in which trainers run. An empty text means the
    #: environment of the workers.
    environment: str = ""
    #: The addresses that are notified about the study (``StudySpec.notify``).
    notify: tuple[str, ...] = field(default=(), repr=False)
    #: The Celery tasks to send when the study ends and when it fails (``StudySpec.on_end``).
    on_end: str = field(default="", repr=False)
    on_error: str = field(default="", repr=False)
    #: The space of an Optuna ``GridSampler``, which brings its own space. It is None for other
    #: samplers.
    space: Space | None = None
    #: The sampler and the pruner that the user gave as Optuna objects. Each is None if not given.
    optuna_sampler: Any = None
    optuna_pruner: Any = None

    @property
    def local(self) -> bool:
        """True if an objective without a space samples by itself (see ``StudySpec.local``)."""
        scheduled = self.strategy is not None or self.constraints or self.system.energy_weight
        is_optunas = self.sampler not in NOT_OPTUNAS
        return not scheduled and (is_optunas or self.optuna_sampler is not None)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives. Values without a name get the names that Optuna's data frames use."""
        first = self.metric or ("values_0" if self.further else "value")
        return (Objective(first, self.direction), *self.further)

    @property
    def directions(self) -> list[str]:
        """The direction of each objective, ``minimize`` or ``maximize``."""
        return [self.direction, *(each.direction for each in self.further)]

    @classmethod
    def of(cls, spec: StudySpec) -> StudyPlan:
        """Return the plan from which ``spec`` was made.

        The plan lacks the Optuna objects and the space of a ``GridSampler``.
        """
        own = ("space", "optuna_sampler", "optuna_pruner", *GROUPS)
        plain = [f.name for f in fields(cls) if f.name not in own]
        groups = {name: group_of(kind, spec) for name, kind in GROUPS.items()}
        return cls(**{name: getattr(spec, name) for name in plain}, **groups)
