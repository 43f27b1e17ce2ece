"""The studies of a ledger as Optuna reads them. Each read takes only the changes.

One query tells whether anything has happened since the last read. A process that writes trials
(``storage``) keeps the trials that it writes up to date itself.

Optuna's ids are whole numbers. A study's id is the second in which it was created, so ids are the
same in every process and follow the order of the studies. If two studies were created in the same
second, the later study gets the next number. A trial's id is its study's id, shifted, plus the
trial's number. JavaScript, which the dashboard uses, represents both ids exactly.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ....tasks.objectives.history import History
from ....tasks.objectives.read_side import selected
from ...ledger.codec import spec_from_json
from ...ledger.listed import DELETED
from ...ledger.reader import Reader
from ...ledger.summary import METRIC_NAMES
from .frozen_trials import KeptResults
from .updates import LedgerUpdates

if TYPE_CHECKING:
    from ...ledger.rows import StudyRow

#: The number of bits of a trial's id that hold the trial's number. Together with a time in seconds
#: these are 52 bits.
NUMBER_BITS = 20
NUMBER = (1 << NUMBER_BITS) - 1


class WrittenTrials:
    """The trials and attributes of a local study, as its objectives and its users wrote them.

    A local study's sampler runs in the trainer (``StudySpec.local``). A subclass serves other
    studies.
    """

    #: True if a trial that has ended never continues. A strategy may continue trials of other
    #: studies.
    lasting = True

    def __init__(self, reader: Reader, row: StudyRow, first_id: int) -> None:
        """Create the object without trials. The id of trial ``n`` is ``first_id + n``."""
        self._updates = LedgerUpdates(reader, row.id, local=self.lasting)
        #: The trials and attributes. A process that writes a trial keeps this trial up to date
        #: itself.
        self.history = History(first_id)

    def read(self, row: StudyRow) -> None:
        """Read the study's new entries in the ledger. Raises BackendError if it does not answer."""
        del row  # the row has none of the objectives' or users' writes
        for update in self._updates.read():
            self.history.apply(update)

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials by number. Callers must not modify them."""
        return self.history.trials

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The study's attributes that users have set."""
        return self.history.user_attrs

    @property
    def system_attrs(self) -> dict[str, Any]:
        """The study's attributes that Optuna's own code has set."""
        return self.history.system_attrs


class ScheduledTrials(WrittenTrials):
    """The trials and attributes of a study whose trials the scheduler proposes.

    The trials include facts that no objective has written, such as the parameters that the
    scheduler has drawn and the device that trained a trial. An objective may write attributes, too.
    """

    lasting = False

    def __init__(self, reader: Reader, row: StudyRow, first_id: int) -> None:
        super().__init__(reader, row, first_id)
        self._results = KeptResults(reader, row.id, first_id)
        self._facts: dict[str, Any] = {}
        self._trials: list[FrozenTrial] = []
        self._parts: list[tuple[FrozenTrial, FrozenTrial]] = []

    def read(self, row: StudyRow) -> None:
        """Read what is new. A trial that has not changed stays the same object."""
        trials = self._results.trials()  # states before writes, as in ``LedgerUpdates.read``
        super().read(row)
        self._facts = _facts(row)
        for number, parts in enumerate(zip(trials, super().trials, strict=False)):
            if number == len(self._trials):
                self._trials.append(_joined(*parts))
                self._parts.append(parts)
            elif any(a is not b for a, b in zip(parts, self._parts[number], strict=True)):
                self._trials[number], self._parts[number] = _joined(*parts), parts

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials by number. Callers must not modify them."""
        return self._trials

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The study's attributes that users have set, and Penstock's facts about the study."""
        return self._facts | super().user_attrs


def _joined(result: FrozenTrial, written: FrozenTrial) -> FrozenTrial:
    """Return ``result`` with the writes of its objective, which ``written`` has.

    The steps that the objective reported replace the intermediate values of ``result``.
    """
    trial = copy.copy(result)
    for name in ("params", "distributions", "user_attrs", "system_attrs"):
        setattr(trial, name, {**getattr(result, name), **getattr(written, name)})
    trial.intermediate_values = written.intermediate_values
    return trial


def _facts(row: StudyRow) -> dict[str, Any]:
    """Return the facts about a study, apart from its trials, that the dashboard shows."""
    return {
        "id": row.id,
        "status": row.status,
        "metric": row.metric,
        "strategy": row.strategy,
        "sampler": row.sampler,
        "seed": row.seed,
        "seeding": row.seeding,
        "replicates": row.replicates,
        "n_trials": row.n_trials,
    }


class LedgerStudy:
    """One study of the ledger, with its trials as of the last read of the ledger."""

    def __init__(self, studies: LedgerStudies, first_id: int, row: StudyRow) -> None:
        """Create the study. The id of trial ``n`` is ``first_id + n``. No trials are read yet."""
        self.row = row
        self._studies = studies
        self._first_id = first_id
        self._written_trials: WrittenTrials | None = None
        self._read = -1  # the number of the newest event when the trials were read

    @property
    def names(self) -> tuple[str, str]:
        """The study's name and its Penstock id."""
        return self.row.name, self.row.id

    @property
    def directions(self) -> list[StudyDirection]:
        """The direction of each objective."""
        return [StudyDirection[each.direction.upper()] for each in self.row.objectives]

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The study's attributes that users have set, and Penstock's facts about the study."""
        return dict(self._newest().user_attrs)

    @property
    def system_attrs(self) -> dict[str, Any]:
        """The attributes that Optuna's code has set, and the objectives' names.

        The names are under the key ``metric_names``.
        """
        row, names = self.row, {}
        if row.metric not in ("value", "values_0") or row.contract in ("torch", "epochs"):
            names = {METRIC_NAMES: [each.metric for each in row.objectives]}
        return names | self._newest().system_attrs

    def trials(self, states: Container[OptunaState] | None) -> list[FrozenTrial]:
        """Return the trials whose state is in ``states``, or all trials if ``states`` is None."""
        with self._studies.lock:
            return selected(self._newest().trials, states)

    def trial(self, trial_id: int) -> FrozenTrial:
        """Return a copy of a trial. Raises KeyError if there is no trial with this id."""
        return copy.deepcopy(self.own(trial_id) or self.known(trial_id))

    def known(self, trial_id: int) -> FrozenTrial:
        """Return a trial, brought up to date. Raises KeyError if there is no trial with this id."""
        number = trial_id & NUMBER
        with self._studies.lock:
            if self._written_trials is None or not self._written_trials.lasting:
                self._studies.study(trial_id >> NUMBER_BITS)
                trials = self._newest().trials
            else:  # read no other rows, since a script that calls callbacks waits
                trials = self._written_trials.trials
                if number < len(trials) and trials[number].state.is_finished():
                    return trials[number]
                trials = self._up_to(self._studies.reader.newest()).trials
        if number >= len(trials):
            raise KeyError(f"there is no trial {trial_id}")
        return trials[number]

    def own(self, trial_id: int) -> FrozenTrial | None:
        """Return the trial with all writes of this process.

        Returns None if this process does not write this trial.
        """
        with self._studies.lock:
            number = trial_id & NUMBER
            if self._written_trials is None or not self._written_trials.history.owns(number):
                return None
            return self._written_trials.history.trials[number]

    def trials_as_read(self) -> list[FrozenTrial]:
        """Return the trials as of the last time that trials of the study were read."""
        return self._read_before().trials

    def take(self, trial_id: int) -> None:
        """Let this process write a trial from now on. The trial must have been read before."""
        with self._studies.lock:
            self._read_before().history.take(trial_id & NUMBER)

    def leave(self, trial_id: int) -> None:
        """Note that this process no longer writes a trial."""
        with self._studies.lock:
            self._read_before().history.leave(trial_id & NUMBER)

    def replace(self, trial: FrozenTrial) -> None:
        """Replace a trial by ``trial``, which this process has changed."""
        with self._studies.lock:
            self._read_before().history.replace(trial)

    def _read_before(self) -> WrittenTrials:
        assert self._written_trials is not None
        return self._written_trials

    def _newest(self) -> WrittenTrials:
        return self._up_to(self._studies.seen)

    def _up_to(self, newest: int) -> WrittenTrials:
        """Return the study's trials, read up to event number ``newest``."""
        with self._studies.lock:
            if self._written_trials is None:
                local = spec_from_json(self.row.spec_json).local
                make = WrittenTrials if local else ScheduledTrials
                self._written_trials = make(self._studies.reader, self.row, self._first_id)
            if self._read != newest:
                self._written_trials.read(self.row)
                self._read = newest
            return self._written_trials


class LedgerStudies:
    """The studies of one ledger. Several threads may use the object."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.lock = threading.RLock()
        self.seen = -1  # the number of the newest event when the studies were read
        self._ids: dict[str, int] = {}
        self._by_number: dict[int, LedgerStudy] = {}

    def shown(self) -> Mapping[int, LedgerStudy]:
        """Return the current studies by Optuna's ids, oldest first."""
        with self.lock:
            self._look()
            return self._by_number

    def study(self, study_id: int) -> LedgerStudy:
        """Return a study, brought up to date.

        Raises KeyError if it does not exist or was deleted.
        """
        self.shown()
        return self.as_read(study_id)

    def as_read(self, study_id: int) -> LedgerStudy:
        """Return a study as of the last read of the ledger. Raises KeyError if it is not known."""
        if study_id not in self._by_number:
            raise KeyError(f"there is no study {study_id}")
        return self._by_number[study_id]

    def drop(self, study_id: int) -> None:
        """Forget a study that was deleted."""
        with self.lock:
            self._by_number = {n: study for n, study in self._by_number.items() if n != study_id}

    def of_trial(self, trial_id: int) -> LedgerStudy:
        """Return the study of a trial. Raises KeyError if it does not exist or was deleted."""
        study_id = trial_id >> NUMBER_BITS
        return self._by_number.get(study_id) or self.study(study_id)

    def _look(self) -> None:
        """Read the studies again if the ledger has new events. The caller holds the lock."""
        if self.seen < 0 and self.reader.is_empty():
            return
        newest = self.reader.newest()
        if newest == self.seen:
            return
        rows = self.reader.studies_ever()
        studies, numbers = {}, set(self._ids.values())
        for row in rows:
            if row.id not in self._ids:
                number = max(1, int(row.created_at))
                while number in numbers:
                    number += 1
                self._ids[row.id] = number
                numbers.add(number)
            number = self._ids[row.id]
            if row.status != DELETED:
                study = self._by_number.get(number)
                studies[number] = study or LedgerStudy(self, number << NUMBER_BITS, row)
                studies[number].row = row
        self._by_number = studies
        self.seen = newest
