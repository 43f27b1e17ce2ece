"""Sends the trainers of objectives the changes that each turn made to their study's trials.

Samplers and pruners in an objective's process read the study's other trials. The trainers take them
from a stream on the broker, to which the scheduler adds what it has committed. The stream ends with
the study, and can be lost, with the broker or alone. After a loss the whole history is sent again
from the ledger; applying an update twice changes nothing. Once a whole history is in the stream,
the entries before it are removed, so that the stream never lacks anything: a trainer reads on from
the id of its last entry.

A mark follows each whole history (``protocol.whole``), also the empty one at the beginning of a
study. A worker that finds no mark, or not the entry that it read last, knows that the stream was
lost, and asks for the whole history (``ObjectiveQuestions``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....scheduler.model.events import (
    EpochReported,
    StudyExtended,
    StudyReopened,
    StudySubmitted,
)
from ....scheduler.state.state import EngineState
from ...broker.protocol import whole
from ...common.ports import Effects
from ...ledger.codec import subject
from ...ledger.writes import Batch
from ..optuna_bridge.updates import Update, of_event, of_report, of_trial, to_texts


class Broadcast:
    """Collects the updates that the trainers of objectives need."""

    def __init__(self, history: Callable[[str], Sequence[Mapping[str, Any]]]) -> None:
        """``history`` reads the whole history of a study from the ledger."""
        self._history = history
        #: The studies whose whole history is sent with the next turn.
        self.due: set[str] = set()

    def repeat(self, state: EngineState) -> None:
        """Send the history of each unfinished study with an objective with the next turn."""
        self.due = _followed(state)

    def collect(self, batch: Batch, state: EngineState, effects: Effects) -> None:
        """Add to ``effects`` the changes of the committed ``batch``.

        The ids of studies that are over are added whatever their contract, for all processes that
        wait for a study.
        """
        updates: defaultdict[str, list[Update]] = defaultdict(list)
        begun: set[str] = set()
        followed = _followed(state)
        for _, event in batch.events if followed else ():
            study, _ = subject(event)
            if study not in followed:
                continue
            if isinstance(event, StudyExtended | StudyReopened | StudySubmitted):
                (begun if isinstance(event, StudySubmitted) else self.due).add(study)
            elif isinstance(event, EpochReported):
                if _counts(event, state):
                    updates[study].append(of_report(event, state.studies[study].spec.metric))
            elif (update := of_event(event)) is not None:
                updates[study].append(update)
        for trial in batch.trials:
            if trial.study in followed:
                updates[trial.study].append(of_trial(trial))
            if trial.finished_at is not None and _is_heard(state, trial.study):
                effects.unheard.append((trial.study, trial.id))
        for record in batch.studies:
            if record.finished_at is not None:
                effects.ended.append(record.spec.id)
        studies_due, self.due = self.due, set()
        if begun or studies_due:
            self._begin(begun - studies_due, studies_due, effects)
        effects.history += [(study, text) for study in updates for text in to_texts(updates[study])]

    def _begin(self, begun: set[str], due: set[str], effects: Effects) -> None:
        """Send the whole history of the studies ``due``, an empty one of those just ``begun``."""
        for study in (*begun, *due):
            texts = to_texts(self._history(study)) if study in due else []
            effects.history += [(study, text) for text in (*texts, whole(len(texts)))]
        effects.repeated += due


def _followed(state: EngineState) -> set[str]:
    """Return the ids of the studies whose trainers follow their history."""
    return {name for name, s in state.studies.items() if s.spec.contract == "objective"}


def _is_heard(state: EngineState, study: str) -> bool:
    """Return True if a script calls callbacks for the study's trials."""
    study_state = state.studies.get(study)
    return study_state is not None and study_state.heard


def _counts(event: EpochReported, state: EngineState) -> bool:
    """Return True if the report was accepted, and not only compared with an accepted one."""
    return event.epoch in state.trials[event.trial].values
