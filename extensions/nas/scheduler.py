"""The scheduler's end: choose the models that a trainer counts next, and keep their counts.

Theory of operation. A trainer that starts a trial counts its model, if the model makes choices.
From then on the study is known to have architectures, and each segment names trials whose models
are not yet counted: its own trial and the first ones that wait. So the costs and the memory of
these trials are predicted before they run (``models.architecture``). Segments of other studies name
no trials. A segment of a super-net's candidate names the place of the super-net's weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.footprint import Footprint
from ...profiling.costs.table import StudyFeatures
from ...scheduler.engine.engine import Parts
from ...scheduler.model.decisions import Member
from ...scheduler.model.study import StudySpec, batch_of
from ...scheduler.model.trial import FINAL, Trial, TrialState
from ...scheduler.state.extensions import NO_VALUES, Extension, SegmentValues
from ...scheduler.state.next_trials import next_trials
from ...scheduler.state.state import StudyState
from .events import Derived, Described
from .known import NAME, Known, KnownStudy, convert, known_of
from .models.architecture import Architecture

__all__ = ["STATE", "convert", "plug"]

#: The type of the extension's state, with which snapshots are read.
STATE = Known


def plug(parts: Parts) -> Extension:
    """Return the extension that keeps the counts of models that make choices."""
    keeper = _Keeper(parts)
    return Extension(
        name=NAME,
        needed_by=keeper.is_needed,
        handlers={Derived: keeper.on_derived, Described: keeper.on_described},
        segment=keeper.next_segment,
        on_footprint=keeper.on_footprint,
        forget=keeper.forget,
    )


class _Keeper:
    """Keeps the counts of each trial's model."""

    def __init__(self, parts: Parts) -> None:
        self._core = parts.core
        self._state = parts.core.state

    def is_needed(self, spec: StudySpec) -> bool:
        return spec.strategy.supernet is not None or spec.id in known_of(self._state).studies

    def next_segment(
        self, study: StudyState, trial: Trial, members: tuple[Member, ...]
    ) -> SegmentValues:
        """Return the trials whose models to count, and the source of a candidate's weights."""
        values: dict[str, Any] = {}
        record = known_of(self._state).studies.get(study.spec.id)
        if record is not None:
            of_trials = record.trials
            uncounted = next_trials(
                self._state, study, trial, lambda each: each.id not in of_trials
            )
            values = {"count": uncounted} if uncounted else {}
        if (of := study.spec.strategy.supernet) is not None:
            values["supernet"] = {
                "uri": of.uri,
                "state_hash": of.state_hash,
                "batches": of.batches,
            }
        return SegmentValues(ext={NAME: values}) if values else NO_VALUES

    def on_derived(self, event: Derived) -> None:
        """Refuse the report of an attempt that is not the trial's current one."""
        self._core.check_fence(self._core.trial(event.trial), event.fence)

    def on_described(self, event: Described) -> None:
        """Keep the counts of a trial's model, unless it has ended, is unknown or is counted."""
        reporter = self._core.trial(event.trial)
        self._core.check_training(reporter, event.fence)
        trial = self._state.trials.get(event.of)
        if trial is None or trial.state in FINAL or self._state.counted(trial) is not None:
            return
        study = self._state.studies[trial.study]
        record = self._note(study)
        before = record.architectures.choices, bool(record.architectures.counted)
        record.trials[trial.id] = event.architecture
        record.architectures.observe(event.architecture, event.choices)
        costs = self._state.costs
        better = costs.features.setdefault(study.spec.id, StudyFeatures())
        better.trials[trial.id] = record.architectures.features(event.architecture)
        better.instead_of = tuple(record.architectures.choices)
        better.mean = record.architectures.mean
        trial_ids: Sequence[str] = (trial.id,)
        if before != (record.architectures.choices, True):
            trial_ids = study.trials  # since all trials need equally many features
        for name in trial_ids:
            features = self._state.features_of(self._state.trials[name])
            costs.describe(study.spec.id, name, features)
        for footprint in self._core.extensions.footprints(trial):
            self._relate_tensors(study, trial, event.architecture, footprint)
        self._core.invalidate_plan()
        if trial.state is TrialState.WAITING:
            self._core.offer_slots()  # its costs and its need of memory are known better now

    def _note(self, study: StudyState) -> KnownStudy:
        """Return the study's counts, to be changed. From now on the study needs this extension."""
        state: Known = self._state.ext.setdefault(NAME, Known())
        record = state.studies.get(study.spec.id)
        if record is None:
            record = state.studies[study.spec.id] = KnownStudy()
            self._core.extensions.study_begins(study)
        return record

    def on_footprint(self, study: StudyState, trial: Trial, found: Footprint) -> None:
        """Learn from one trial's tensors, estimated or measured, to predict those of others."""
        record = known_of(self._state).studies.get(study.spec.id)
        own = None if record is None else record.trials.get(trial.id)
        if own is not None:
            self._relate_tensors(study, trial, own, found)

    def _relate_tensors(
        self, study: StudyState, trial: Trial, own: Architecture, footprint: Footprint
    ) -> None:
        examples = batch_of(study.spec, trial.params)
        architectures = known_of(self._state).studies[study.spec.id].architectures
        architectures.observe_tensors(own, examples, footprint.persistent, footprint.ephemeral)

    def forget(self, study: str) -> None:
        """Drop the counts of a study that has ended."""
        known_of(self._state).studies.pop(study, None)
