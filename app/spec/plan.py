"""What ``create_study`` settles of a study, before its code, space and size are known."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ...scheduler.model.study import Objective, StrategySpec, StudySpec
from .options import GROUPS, Exactness, Limits, Resources, Share, SystemTuning, group_of
from .space import Space


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``create_study`` settles: all of a study but its code, its space and its size.

    ``space`` is only set by an Optuna ``GridSampler``, which brings its own.
    """

    direction: str
    metric: str | None
    sampler: str
    sampler_options: str
    strategy: StrategySpec | None
    seed: int
    further: tuple[Objective, ...]
    constraints: tuple[tuple[str, float], ...]
    exactness: Exactness
    resources: Resources
    limits: Limits
    system: SystemTuning
    share: Share
    space: Space | None = None

    @classmethod
    def of(cls, spec: StudySpec) -> Plan:
        """The plan that led to ``spec``."""
        plain = [f.name for f in fields(cls) if f.name not in GROUPS and f.name != "space"]
        groups = {name: group_of(kind, spec) for name, kind in GROUPS.items()}
        return cls(**{name: getattr(spec, name) for name in plain}, **groups)
