"""Workloads: what trials have in common that share a system configuration, and what is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log2

from ...profiling.knobs.knobs import Choices, SystemConfig, merged, part
from ...profiling.knobs.racing import Race
from ..model.decisions import AskConfigs, Consult
from ..model.study import Metrics, StudySpec, shards_of
from ..model.trial import Trial


@dataclass(slots=True)
class Tuned:
    """What is known of one workload. ``kinds`` of knobs may be turned, exact ones always.

    ``choices`` are those of them that its study allows and its slots have, with their values.

    Exact configurations race among themselves, and so do the ``others``, which are for a trial's
    whole life: a trial has the winners of both. ``probing`` is the trial that measures now, or
    empty. ``trained`` and ``spent`` are seconds of epochs, and of windows that were thrown away.
    ``begun`` counts trials since the winner was measured last; ``silent`` probes without an answer,
    the last of which was ``granted`` so many seconds.
    ``profile`` is that of the first of the ``profiled`` epochs, under the default; ``asked`` is
    unanswered, and ``advice`` why it has the arm that it was advised to try. ``sought`` are
    questions for arms without an answer. ``usual``: seconds of an epoch under the default of the
    trial that measures by epochs (``grid``), 0: not known. ``remembered`` is what the history was
    last told.
    """

    kinds: tuple[str, ...] = ("exact",)
    choices: Choices = ()
    exact: Race = field(default_factory=Race)
    others: Race = field(default_factory=Race)
    probing: str = ""
    silent: int = 0
    granted: float = 0.0
    trained: float = 0.0
    spent: float = 0.0
    begun: int = 0
    profile: Metrics = ()
    profiled: int = 0
    asked: Consult | None = None
    advice: str = ""
    sought: tuple[AskConfigs, ...] = ()
    usual: float = 0.0
    remembered: SystemConfig | None = None

    @property
    def races(self) -> tuple[Race, Race]:
        return self.exact, self.others

    @property
    def chosen(self) -> SystemConfig:
        """What is known to be the fastest."""
        return merged(self.exact.chosen, self.others.chosen)

    @property
    def over(self) -> bool:
        """Whether nothing is left to be tried."""
        return all(race.over or not race.arms for race in self.races)

    def enter(self, configs: Iterable[SystemConfig]) -> None:
        """Have configurations race, their exact parts apart from the rest.

        What is not among the choices is left out: a history may come from elsewhere. In the paper's
        grid there are no parts, where all kinds may be turned between two epochs.
        """
        allowed = dict(self.choices)
        for given in configs:
            config = tuple(pair for pair in given if pair[1] in allowed.get(pair[0], ()))
            if self.others.probing == "grid" and len(self.kinds) > 1:
                self.others.enter([part(config, *self.kinds)])
            else:
                self.exact.enter([part(config, "exact")])
                self.others.enter([part(config, *self.kinds[1:])])

    def race_of(self, config: SystemConfig) -> Race:
        return self.others if self.others.has(config) else self.exact


def workload_of(spec: StudySpec, trial: Trial) -> str:
    """A digest (16 hex digits) for code, batch bucket, shards and what may be turned: nobody can
    read a user's names or data from it.
    """
    params = dict(trial.params)
    batch = params.get("batch_size", spec.batch_size)
    bucket = round(log2(batch)) if isinstance(batch, (int, float)) and batch > 0 else 0
    names = (
        spec.code.target.rpartition(":")[2],
        spec.code.digest,
        str(bucket),
        str(shards_of(spec, trial.params)),
        spec.system,
        ",".join(spec.knobs or ("usual",)),
        spec.probing,
        spec.exactness,
        # Named only where it is there: a workload keeps the digest that histories know it by.
        *([f"energy {spec.energy_weight!r}"] if spec.energy_weight else []),
    )
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]
