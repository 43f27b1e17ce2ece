"""A study's trials as updates of Optuna's trial history (``tasks.objectives.history``).

The same updates are made in two places. The scheduler makes updates from the events and trials of a
turn, and sends the updates to trainers. Clients make updates from the ledger's changes since the
last read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ....scheduler.model.events import (
    EpochReported,
    Event,
    StudyWritten,
    Suggested,
    TrialAdded,
    TrialWritten,
)
from ....scheduler.model.finished import FinishedTrial
from ....scheduler.model.study import Scalar, number_of
from ....scheduler.model.trial import FINAL, Trial, TrialState
from ....scheduler.model.writing import Attributes, Writing
from ....tasks.objectives.distributions import from_text
from ....tasks.objectives.log_records import KEY as LOG_RECORDS
from ....tasks.objectives.objects import MARK
from ....wire.messages import number_text
from .plain_attributes import listed_of_study, written_of

if TYPE_CHECKING:
    from ...ledger.reader import Reader
    from ...ledger.rows import EpochRow, TrialRow

Update = Mapping[str, Any]

_WRITTEN = ("suggestions", "steps", "user_attrs", "system_attrs")

#: The names that updates use for the states of a trial.
STATES = {
    TrialState.PROPOSED: "waiting",
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.PAUSED: "running",
    TrialState.COMPLETED: "complete",
    TrialState.STOPPED: "pruned",
    TrialState.FAILED: "fail",
    TrialState.CANCELLED: "fail",
}


def of_event(event: Event) -> Update | None:
    """Return the update of a trial or a study that follows from ``event``, or None.

    The update does not contain the trial's state.
    """
    match event:
        case TrialAdded():
            times = {"started": event.started}
            return {"n": number_of(event.trial), **times, **_written(event.writing)}
        case TrialWritten():
            return {"n": number_of(event.trial), **_written(event.writing)}
        case StudyWritten():
            return _of_study(event.user_attrs, event.system_attrs)
        case Suggested():
            suggestion = suggested(event.name, event.value, event.distribution)
            return {"n": number_of(event.trial), "suggestions": [suggestion]}
    return None


def of_report(event: EpochReported, metric: str) -> Update:
    """Return the update with the intermediate value of an epoch that an objective reported."""
    metrics = dict(event.metrics)
    return _step(number_of(event.trial), event.epoch, metrics[metric], metrics)


def of_trial(trial: Trial) -> Update:
    """Return the update with the current state of one of the engine's trials."""
    values = () if trial.value is None else (trial.value, *trial.further)
    began = trial.dispatched_at if trial.dispatched_at is not None else trial.created_at
    return _state(trial.number, trial.state, values, began, trial.finished_at)


def of_row(row: TrialRow, began: float | None = None) -> Update:
    """Return the update with the state of a trial in the ledger.

    ``began`` is the start time of the trial's first epoch, or None if the trial has no epoch.
    """
    started = began or row.dispatched_at or row.created_at
    return _state(row.number, TrialState(row.state), row.values, started, row.finished_at)


def of_epoch(row: EpochRow) -> Update:
    """Return the update with the intermediate value of an accepted epoch."""
    return _step(number_of(row.trial), row.epoch, row.value, row.metrics)


def suggested(name: str, value: Scalar, distribution: str) -> tuple[str, str, float]:
    """Return a parameter in the form that updates use: name, distribution and internal value."""
    return name, distribution, from_text(distribution).to_internal_repr(value)


def _state(
    number: int, state: TrialState, values: Iterable[float], began: float, ended: float | None
) -> Update:
    name = STATES[state]
    counts = name in ("complete", "pruned")
    return {
        "n": number,
        "state": name,
        "values": [number_text(value) for value in values] if counts else [],
        "started": None if name == "waiting" else began,
        "ended": ended,
    }


def _step(number: int, epoch: int, value: float, metrics: Mapping[str, float]) -> Update:
    step = int(metrics.get("step", epoch))
    return {"n": number, "steps": [(step, number_text(value))]}


def _written(writing: Writing) -> dict[str, Any]:
    update = {
        **_attributes("user_attrs", writing.user_attrs),
        **_attributes("system_attrs", writing.system_attrs),
    }
    if writing.suggestions:
        update["suggestions"] = [
            (each.name, each.distribution, number_text(each.internal))
            for each in writing.suggestions
        ]
    if writing.steps:
        update["steps"] = [(step, number_text(value)) for step, value in writing.steps]
    return update


def _of_study(user: Attributes, system: Attributes) -> Update:
    return _attributes("user_attrs", user) | _attributes("system_attrs", system)


def _attributes(name: str, found: Attributes) -> dict[str, Any]:
    """Return the attributes ``found`` as the field ``name`` of an update.

    Log records are left out, because they are only for the script.
    """
    pairs = tuple(pair for pair in found if not pair[0].startswith(LOG_RECORDS))
    return {name: pairs} if pairs else {}


class LedgerUpdates:
    """The updates of one study in the ledger. Each call returns the updates since the last call."""

    def __init__(self, reader: Reader, study: str, *, local: bool = False) -> None:
        """Create an object that has read nothing yet.

        ``local`` is True if a trial that has ended never changes again.
        """
        self._local = local
        self._settled = 0  # all trials with a lower number have ended, and were read
        self._reader = reader
        self._study = study
        self._seq = self._rowid = 0
        self._began: dict[str, float] = {}
        self._is_new = True
        self._rows: dict[str, TrialRow] = {}

    def read(self) -> list[Update]:
        """Return the new updates. Raises BackendError if the ledger does not answer.

        States are read before writes. So if a trial is shown as ended, its writes are included.
        """
        rows = self._reader.trials(self._study, self._settled)
        updates = self.read_written()
        if any(row.epoch for row in rows):  # epochs of settled trials were read earlier
            for epoch in self._reader.epochs(self._study, self._rowid):
                self._rowid = epoch.rowid
                self._began.setdefault(epoch.trial, epoch.at - epoch.seconds)
                updates.append(of_epoch(epoch))
        for row in rows:
            if self._rows.get(row.id) != row:
                self._rows[row.id] = row
                updates.append(of_row(row, self._began.get(row.id)))
        if self._local:
            settled = takewhile(lambda row: TrialState(row.state) in FINAL, rows)
            self._settled += sum(1 for _ in settled)
        return updates

    def read_written(self) -> list[Update]:
        """Return the new writes of objectives and users.

        Raises BackendError if the ledger does not answer. After an error nothing counts as read.
        """
        updates = self._imported() if self._is_new else []
        events = self._reader.written(self._study, self._seq)
        self._is_new = False
        for seq, event in events:
            self._seq = seq
            update = of_event(event)
            if update is not None:
                updates.append(update)
        return updates

    def _imported(self) -> list[Update]:
        """Return the updates of an imported study, without references to stored objects."""
        record = self._reader.imported(self._study)
        if record is None:
            return []
        _, event = record
        of_study = _of_study(event.user_attrs, listed_of_study(event.system_attrs))
        updates = [of_study, *(_past(trial) for trial in event.trials)]
        return [_without_objects(update) for update in updates]


def merged(updates: Iterable[Update]) -> dict[int, dict[str, list[Any]]]:
    """Return the writes of each trial in ``updates``, by trial number.

    States and times are left out.
    """
    writes: defaultdict[int, dict[str, list[Any]]] = defaultdict(dict)
    for update in updates:
        for name in _WRITTEN:
            if "n" in update and name in update:
                writes[update["n"]].setdefault(name, []).extend(update[name])
    return writes


def study_attributes(updates: Iterable[Update]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the study's attributes, the user's and Optuna's own, as JSON texts by key."""
    user: dict[str, str] = {}
    system: dict[str, str] = {}
    for update in updates:
        if "n" not in update:
            user |= update.get("user_attrs", ())
            system |= update.get("system_attrs", ())
    return user, system


def _past(trial: FinishedTrial) -> Update:
    content = written_of(trial)
    if "suggestions" not in content:
        params = dict(trial.params)
        distributions = [(name, text) for name, text in trial.drawn if name in params]
        sampled = [suggested(name, params[name], text) for name, text in distributions]
        content |= {"suggestions": sampled} if sampled else {}
    return {"n": trial.number, **content}


def _without_objects(update: Update) -> Update:
    """Return ``update`` with plain JSON values in place of references to stored objects.

    See ``tasks.objectives.objects``.
    """
    plain = {
        name: [(k, text.lstrip() if text.startswith(MARK) else text) for k, text in update[name]]
        for name in ("user_attrs", "system_attrs")
        if name in update
    }
    return {**update, **plain}


def to_texts(updates: Iterable[Update], longest: int = 1 << 18) -> list[str]:
    """Return ``updates`` as JSON texts.

    Each text is a JSON list of updates. It is not much longer than ``longest`` characters.
    """
    texts: list[str] = []
    lines: list[str] = []
    size = 0
    for update in updates:
        line = json.dumps(update, separators=(",", ":"))
        if lines and size + len(line) > longest:
            texts.append(f"[{','.join(lines)}]")
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    return [*texts, f"[{','.join(lines)}]"] if lines else texts
