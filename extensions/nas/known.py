"""Counts of models: the state that the extension keeps in the engine's.

It is by study, so that all of it goes as a study is over. Of studies whose models make no choices,
as far as is known, nothing is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...base.footprint import Footprint
from ...scheduler.model.study import Metrics, StudySpec, batch_of
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import EngineState
from .models.architecture import Architecture, Architectures

#: The name of the extension, and of its state.
NAME = "nas"


@dataclass(slots=True)
class KnownStudy:
    """Counts of the models of a study's trials."""

    architectures: Architectures = field(default_factory=Architectures)
    #: The counts of each trial's model, by the trial's id.
    trials: dict[str, Architecture] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountedTrial:
    """Counts of one trial's model before it is trained, for other extensions."""

    of_study: Architectures
    own: Architecture
    #: Examples in a step.
    examples: float

    @property
    def size(self) -> str:
        """Name models that do about as much work."""
        return self.own.size

    @property
    def profile(self) -> Metrics:
        """Return the counts as features of a profile."""
        return self.own.profile

    @property
    def tensors(self) -> Footprint | None:
        """Expected footprint of its tensors, from other models; None if unknown."""
        stay, ephemeral = self.of_study.tensors(self.own, self.examples)
        return Footprint(stay, ephemeral, stay + ephemeral) if stay else None


@dataclass(slots=True)
class Known:
    """Counts of all models that make choices, by study."""

    studies: dict[str, KnownStudy] = field(default_factory=dict)

    def counted(self, spec: StudySpec, trial: Trial) -> CountedTrial | None:
        """Return the counts of a trial's model; None if it was not counted."""
        study = self.studies.get(spec.id)
        own = None if study is None else study.trials.get(trial.id)
        if study is None or own is None:
            return None
        return CountedTrial(study.architectures, own, batch_of(spec, trial.params))


_NOTHING = Known()


def known_of(state: EngineState) -> Known:
    """Return the extension's read-only knowledge of all studies."""
    knowledge: Known = state.ext.get(NAME, _NOTHING)
    return knowledge


def convert(snapshot: dict[str, Any]) -> None:
    """Move what a snapshot of 0.2 has of architectures to where it is kept now."""
    trials: dict[str, dict[str, Any]] = {}
    for name, trial in snapshot["trials"].items():
        if (fields := trial.pop("architecture", None)) is not None:
            trials.setdefault(trial["study"], {})[name] = fields
    studies: dict[str, Any] = {}
    better = snapshot["costs"].setdefault("features", {})
    for name, study in snapshot["studies"].items():
        fields = study.pop("architectures", None)
        if not fields or not fields["counted"]:
            continue
        of_trials = trials.get(name, {})
        studies[name] = {"architectures": fields, "trials": of_trials}
        first = Architecture(**fields["first"])
        architectures = Architectures(first, counted=fields["counted"], sums=fields["sums"])
        features = {
            trial: architectures.features(Architecture(**own)) for trial, own in of_trials.items()
        }
        better[name] = {
            "instead_of": fields["choices"],
            "trials": features,
            "mean": architectures.mean,
        }
    if studies:
        snapshot["ext"][NAME] = {"studies": studies}
