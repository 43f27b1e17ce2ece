"""Counts of models: the state of this extension, which is part of the engine's state.

The counts are grouped by study, so that they are dropped together when a study ends. Nothing is
kept for studies whose models are not known to make choices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...base.footprint import Footprint
from ...scheduler.model.study import Metrics, StudySpec, batch_of
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import EngineState
from .models.architecture import Architecture, Architectures

#: The name of the extension and of its state.
NAME = "nas"


@dataclass(slots=True)
class KnownStudy:
    """Counts of the models of one study's trials."""

    architectures: Architectures = field(default_factory=Architectures)
    #: The counts of each trial's model, by the trial's id.
    trials: dict[str, Architecture] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountedTrial:
    """Counts of one trial's model, made before it is trained, as other extensions read them."""

    of_study: Architectures
    own: Architecture
    #: Number of examples in a step.
    examples: float

    @property
    def size(self) -> str:
        """A name that is the same for all models of about as much work."""
        return self.own.size

    @property
    def profile(self) -> Metrics:
        """The counts of the model as features of a profile."""
        return self.own.profile

    @property
    def tensors(self) -> Footprint | None:
        """The expected footprint of the model's tensors; None if it is unknown.

        The footprint is predicted from those of other models of the study.
        """
        stay, ephemeral = self.of_study.tensors(self.own, self.examples)
        return Footprint(stay, ephemeral, stay + ephemeral) if stay else None


@dataclass(slots=True)
class Known:
    """Counts of all models that make choices, grouped by study."""

    studies: dict[str, KnownStudy] = field(default_factory=dict)

    def counted(self, spec: StudySpec, trial: Trial) -> CountedTrial | None:
        """Return the counts of a trial's model; None if the model has not been counted."""
        study = self.studies.get(spec.id)
        own = None if study is None else study.trials.get(trial.id)
        if study is None or own is None:
            return None
        return CountedTrial(study.architectures, own, batch_of(spec, trial.params))


_NOTHING = Known()


def known_of(state: EngineState) -> Known:
    """Return the counts of all studies' models, to be read only."""
    knowledge: Known = state.ext.get(NAME, _NOTHING)
    return knowledge


def convert(snapshot: dict[str, Any]) -> None:
    """Move the architectures in a snapshot of version 0.2 to the extension's state."""
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
