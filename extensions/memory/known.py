"""Knowledge of trials' memory needs, which the extension keeps in the engine's state.

The knowledge is kept by study, so that all of it is dropped when the study ends. Studies and trials
without any report have no entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...base.footprint import Footprint
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import EngineState
from .processes import Processes

#: The name of the extension, and of its state.
NAME = "memory"


@dataclass(slots=True)
class KnownTrial:
    """The known facts about one trial's memory."""

    #: True if the trial shares no device any more, because it ran out of memory next to others.
    alone: bool = False
    #: Number of times that the trial ran out of memory next to others.
    shortages: int = 0
    #: The most memory (bytes) of the trial's process in accepted epochs, by kind of device.
    peaks: dict[str, int] = field(default_factory=dict)
    #: The least need (bytes) assumed after a shortage of memory, by kind of device.
    floors: dict[str, int] = field(default_factory=dict)
    #: The memory need estimated before the trial ran; all 0 if that was not possible.
    estimate: Footprint | None = None
    #: The measured memory need.
    measured: Footprint | None = None

    @property
    def tensors(self) -> Footprint | None:
        """The bytes of the trial's tensors: measured if known, else estimated."""
        return self.measured or self.estimate


@dataclass(slots=True)
class KnownStudy:
    """The known facts about the memory of a study's trials."""

    #: Number of the study's last trials, in a row, that could not be traced (``footprints``).
    untraced: int = 0
    #: Facts about the processes of the study's trials, by kind of device.
    processes: dict[str, Processes] = field(default_factory=dict)
    #: The known facts about each trial's memory, by trial id.
    trials: dict[str, KnownTrial] = field(default_factory=dict)


@dataclass(slots=True)
class Known:
    """The known facts about the memory of all trials, by study."""

    studies: dict[str, KnownStudy] = field(default_factory=dict)


_NOTHING, _NO_STUDY, _NO_TRIAL = Known(), KnownStudy(), KnownTrial()


def known_of(state: EngineState) -> Known:
    """Return the extension's read-only knowledge of all studies."""
    knowledge: Known = state.ext.get(NAME, _NOTHING)
    return knowledge


def known_study(state: EngineState, study: str) -> KnownStudy:
    """Return the read-only knowledge of a study."""
    return known_of(state).studies.get(study, _NO_STUDY)


def known_trial(state: EngineState, trial: Trial) -> KnownTrial:
    """Return the read-only knowledge of a trial."""
    return known_study(state, trial.study).trials.get(trial.id, _NO_TRIAL)


def note_study(state: EngineState, study: str) -> KnownStudy:
    """Return the mutable knowledge of a study; it is created if missing."""
    knowledge: Known = state.ext.setdefault(NAME, Known())
    return knowledge.studies.setdefault(study, KnownStudy())


def note_trial(state: EngineState, trial: Trial) -> KnownTrial:
    """Return the mutable knowledge of a trial; it is created if missing."""
    return note_study(state, trial.study).trials.setdefault(trial.id, KnownTrial())


def forget_study(state: EngineState, study: str) -> None:
    """Drop the knowledge of a study that has ended."""
    known_of(state).studies.pop(study, None)


def footprints_of(state: EngineState, trial: Trial) -> Iterable[Footprint]:
    """Return the trial's estimated footprint and its measured one, as far as they exist."""
    record = known_trial(state, trial)
    return (each for each in (record.estimate, record.measured) if each is not None)


def convert(snapshot: dict[str, Any]) -> None:
    """Move the knowledge of memory in a snapshot of release 0.2 to the extension's own state."""
    studies: dict[str, dict[str, Any]] = {}
    for name, study in snapshot["studies"].items():
        fields = {key: study.pop(key, None) for key in ("untraced", "processes")}
        if any(fields.values()):
            studies[name] = fields
    for name, trial in snapshot["trials"].items():
        own = {key: trial.pop(key, None) for key in KnownTrial.__slots__}
        if any(own.values()):
            study = studies.setdefault(trial["study"], {})
            study.setdefault("trials", {})[name] = {key: each for key, each in own.items() if each}
    if studies:
        snapshot["ext"][NAME] = {"studies": studies}
