"""Send the trainers of objectives the changes that each turn made to their study's trials.

Samplers and pruners that run in an objective's process read the study's other trials. The trainers
read these trials from a stream on the broker, one stream for each study. The scheduler appends each
change to the stream after the ledger has it. The stream is deleted when the study ends.

The stream can be lost, together with the rest of the broker's data or alone. The scheduler then
sends the study's whole history again from the ledger. Applying an update twice changes nothing.
Once a whole history is in the stream, the earlier entries are removed. A trainer reads on from the
id of the last entry that it has read.

A mark follows each whole history (``protocol.whole``), including the empty history at the beginning
of a study. If a worker finds no mark, or does not find the entry that it read last, the stream was
lost. The worker then asks for the whole history (``ObjectiveQuestions``).
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
    """The updates that the next turn sends to the trainers of objectives."""

    def __init__(self, history: Callable[[str], Sequence[Mapping[str, Any]]]) -> None:
        """Create a broadcast in which no study is due.

        ``history`` reads the whole history of a study from the ledger, given the study's id.
        """
        self._history = history
        #: The ids of the studies whose whole history is sent with the next turn.
        self.due: set[str] = set()

    def repeat(self, state: EngineState) -> None:
        """Have the next turn send the whole history of every unfinished study with an objective."""
        self.due = _followed(state)

    def collect(self, batch: Batch, state: EngineState, effects: Effects) -> None:
        """Add the changes in the committed ``batch`` to ``effects``, for the turn to send.

        The changes are the updates for trainers of objectives, the ended trials for which a script
        calls callbacks, and the ids of studies that are over. The ids of ended studies are added
        for every kind of study, because any process may wait for a study's end.
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
        """Add the histories of ``begun`` and ``due`` studies to ``effects``, each before its mark.

        The history of a study in ``due`` is read from the ledger. The history of a study in
        ``begun`` is empty, because the study was submitted in this turn.
        """
        for study in (*begun, *due):
            texts = to_texts(self._history(study)) if study in due else []
            effects.history += [(study, text) for text in (*texts, whole(len(texts)))]
        effects.repeated += due


def _followed(state: EngineState) -> set[str]:
    """Return the ids of the unfinished studies whose trainers read the study's history."""
    return {name for name, s in state.studies.items() if s.spec.contract == "objective"}


def _is_heard(state: EngineState, study: str) -> bool:
    """Return True if a script calls callbacks for the study's trials."""
    study_state = state.studies.get(study)
    return study_state is not None and study_state.heard


def _counts(event: EpochReported, state: EngineState) -> bool:
    """Return True if the engine accepted the report's epoch as part of the trial.

    A late report does not count: the engine only compares it with an accepted epoch.
    """
    return event.epoch in state.trials[event.trial].values
