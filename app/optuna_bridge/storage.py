"""The ledger as a storage of Optuna: its own tools and plain ``optuna.Study`` read and write it.

Reads come from the ledger and are incremental: one query tells whether anything has happened since
the last read. Writes are commands to the scheduler, the ledger's only writer. What creates, takes
or ends a trial, and what is written of a study, is in the ledger when its call returns. Other
writes to a trial that this process has created or taken are seen here at once. They are sent with
its next change of state, or ``SEND_AFTER`` seconds later (``tasks.objectives.pending``). Trials
that Penstock runs on its devices are written by their own objectives alone; of others they take
attributes only.

Optuna's ids are whole numbers. A study's id is the second in which it was created, so ids are the
same in every process and follow the order of the studies. Of two studies in one second the later
one has the next number. A trial's id is its study's id, shifted, plus its number. JavaScript holds
both exactly.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.storages._base import DEFAULT_STUDY_NAME_PREFIX
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ...profiling.base.errors import UsageError
from ...tasks.objectives.pending import PendingWrites
from ...tasks.objectives.wire import (
    attribute,
    check_compatible,
    record_of,
    suggestion,
    user_attribute,
)
from ...tasks.process.messages import number_text
from ..ledger.listed import DELETED
from ..ledger.reader import Reader
from ..ledger.summary import METRIC_NAMES
from .ledger_trials import WrittenTrials, trials_of

if TYPE_CHECKING:
    from ..ledger.rows import StudyRow

#: Bits of a trial's id that are its number. With a time in seconds that makes 52.
NUMBER_BITS = 20
_NUMBER = (1 << NUMBER_BITS) - 1


class CommandSender(Protocol):
    """Sends commands to the scheduler (``app.broker.client``)."""

    def send(self, kind: str, **body: Any) -> dict[str, Any]:
        """The scheduler's answer. Raises UsageError if it refuses."""

    def create(self, name: str, directions: Sequence[str]) -> None:
        """Begin a study without code, whose trials its users add."""

    def keep(self, value: Any) -> str:
        """The text of the placeholder of an object that is no JSON, once it is stored."""


class LedgerStorage(BaseStorage):
    """The studies of one ledger. Safe for several threads."""

    def __init__(
        self,
        reader: Reader,
        commands: CommandSender | None = None,
        reopen: Callable[[], BaseStorage] | None = None,
    ) -> None:
        """Without ``commands`` it is read-only. ``reopen`` makes the storage in other processes."""
        self._reader = reader
        self._commands = commands
        self._reopen = reopen
        self._lock = threading.RLock()
        self._seen = -1  # the newest event when the studies were read
        self._ids: dict[str, int] = {}
        self._studies: dict[int, StudyRow] = {}
        self._trials: dict[int, WrittenTrials] = {}
        self._read: dict[int, int] = {}  # the newest event when a study's trials were read
        self._pending = PendingWrites(self._send_writing)

    def __reduce__(self) -> Any:
        if self._reopen is None:
            raise UsageError("this storage cannot be sent to other processes: create one there")
        return self._reopen, ()

    # -- studies ---------------------------------------------------------------------------------

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        """Begin a study without code; DuplicatedStudyError if its name is taken."""
        name = DEFAULT_STUDY_NAME_PREFIX + str(uuid.uuid4()) if study_name is None else study_name
        if self._named(name) is not None:
            raise DuplicatedStudyError(f"there is a study {name!r} already")
        self._sender().create(name, [each.name.lower() for each in directions])
        return self.get_study_id_from_name(name)

    def delete_study(self, study_id: int) -> None:
        self._send("delete", study_id)
        with self._lock:
            self._trials.pop(study_id, None)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self._send("annotate", study_id, writing={"user_attrs": [self._user_attribute(key, value)]})

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._send("annotate", study_id, writing={"system_attrs": [self._attribute(key, value)]})

    def get_all_studies(self) -> list[FrozenStudy]:
        """All studies, oldest first."""
        with self._lock:
            self._look()
            return [
                FrozenStudy(
                    row.name,
                    None,
                    self.get_study_user_attrs(number),
                    self.get_study_system_attrs(number),
                    number,
                    directions=_directions(row),
                )
                for number, row in self._studies.items()
            ]

    def get_study_id_from_name(self, study_name: str) -> int:
        """The newest study of this name, or the one with this Penstock id. KeyError if absent."""
        number = self._named(study_name)
        if number is None:
            raise KeyError(f"there is no study {study_name!r}")
        return number

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._study(study_id).name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return _directions(self._study(study_id))

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        with self._lock:
            self._study(study_id)
            return dict(self._newest(study_id).user_attrs)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        with self._lock:
            row = self._study(study_id)
            named = row.metric not in ("value", "values_0") or row.contract in ("torch", "epochs")
            return (_metric_names(row) if named else {}) | self._newest(study_id).system_attrs

    # -- trials ----------------------------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        record = record_of(template_trial, self._sender().keep)
        answer = self._send("add", study_id, **record)
        trial_id = (study_id << NUMBER_BITS) + int(answer["number"])
        if template_trial is None or template_trial.state is OptunaState.RUNNING:
            self._take(trial_id)
        return trial_id

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        trial = self._updatable(trial_id)
        with self._lock:
            others = self._trials[trial_id >> NUMBER_BITS].trials
            check_compatible(param_name, distribution, others)
        value = distribution.to_external_repr(param_value_internal)
        trial.params = {**trial.params, param_name: value}
        trial.distributions = {**trial.distributions, param_name: distribution}
        found = suggestion(param_name, param_value_internal, distribution)
        self._write(trial, {"suggestions": [found]})

    def set_trial_state_values(
        self, trial_id: int, state: OptunaState, values: Sequence[float] | None = None
    ) -> bool:
        """Take or end a trial. False if another process has taken it."""
        trial = self._updatable(trial_id)
        if state is OptunaState.RUNNING and trial.state is not OptunaState.WAITING:
            return False
        texts = [number_text(float(value)) for value in values or ()]
        try:
            self._pending.flush(trial_id, state=state.name.lower(), values=texts)
        except UsageError:
            if state is OptunaState.RUNNING and self._trial(trial_id).state is not trial.state:
                return False
            raise
        if state is OptunaState.RUNNING:
            self._take(trial_id)
        else:
            self._leave(trial_id)
        return True

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        trial = self._updatable(trial_id)
        trial.intermediate_values = {**trial.intermediate_values, step: intermediate_value}
        self._write(trial, {"steps": [(step, number_text(intermediate_value))]})

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        written = self._user_attribute(key, value)
        trial.user_attrs = {**trial.user_attrs, key: value}
        self._write(trial, {"user_attrs": [written]})

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        written = self._attribute(key, value)
        trial.system_attrs = {**trial.system_attrs, key: value}
        self._write(trial, {"system_attrs": [written]})

    def remove_session(self) -> None:
        """Send what was written and not sent yet."""
        self._pending.flush_all()

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[OptunaState] | None = None,
    ) -> list[FrozenTrial]:
        """The trials by number."""
        with self._lock:
            self._study(study_id)
            every = self._newest(study_id).trials
            found = [trial for trial in every if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return copy.deepcopy(self._own(trial_id) or self._trial(trial_id))

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        return self._trial((study_id << NUMBER_BITS) + trial_number)._trial_id

    # -- inside ----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the studies again if anything has happened. The lock is held."""
        if self._seen < 0 and self._reader.is_empty():
            return
        newest = self._reader.newest()
        if newest == self._seen:
            return
        studies = self._reader.studies_ever()
        taken = set(self._ids.values())
        for row in studies:
            if row.id not in self._ids:
                number = max(1, int(row.created_at))
                while number in taken:
                    number += 1
                self._ids[row.id] = number
                taken.add(number)
        self._studies = {self._ids[row.id]: row for row in studies if row.status != DELETED}
        self._seen = newest

    def _named(self, name: str) -> int | None:
        with self._lock:
            self._look()
            for number, row in reversed(self._studies.items()):
                if name in (row.name, row.id):
                    return number
        return None

    def _study(self, study_id: int) -> StudyRow:
        with self._lock:
            self._look()
            if study_id not in self._studies:
                raise KeyError(f"there is no study {study_id}")
            return self._studies[study_id]

    def _newest(self, study_id: int) -> WrittenTrials:
        """The trials, as of now, of a study that is known. The lock is held."""
        if study_id not in self._trials:
            row = self._studies[study_id]
            self._trials[study_id] = trials_of(self._reader, row, study_id << NUMBER_BITS)
        self._read_up_to(study_id, self._seen)
        return self._trials[study_id]

    def _read_up_to(self, study_id: int, newest: int) -> None:
        """Read what happened to the study's trials until event ``newest``. The lock is held."""
        if self._read.get(study_id) != newest:
            self._trials[study_id].read(self._studies[study_id])
            self._read[study_id] = newest

    def _trial(self, trial_id: int) -> FrozenTrial:
        study_id, number = trial_id >> NUMBER_BITS, trial_id & _NUMBER
        with self._lock:
            known = self._trials.get(study_id)
            if known is None or not known.lasting:
                trials = self.get_all_trials(study_id, deepcopy=False)
            else:  # a script that calls callbacks waits for no row but these
                trials = known.trials
                if number < len(trials) and trials[number].state.is_finished():
                    return trials[number]
                self._read_up_to(study_id, self._reader.newest())
                trials = known.trials
        if number >= len(trials):
            raise KeyError(f"there is no trial {trial_id}")
        return trials[number]

    def _take(self, trial_id: int) -> None:
        """A trial is this process's: nobody else writes it, so it need not be read again."""
        self._trial(trial_id)
        with self._lock:
            self._trials[trial_id >> NUMBER_BITS].history.take(trial_id & _NUMBER)

    def _leave(self, trial_id: int) -> None:
        with self._lock:
            self._trials[trial_id >> NUMBER_BITS].history.leave(trial_id & _NUMBER)

    def _own(self, trial_id: int) -> FrozenTrial | None:
        """The trial as this process has written it, if it is its own."""
        with self._lock:
            known, number = self._trials.get(trial_id >> NUMBER_BITS), trial_id & _NUMBER
            if known is None or not known.history.owns(number):
                return None
            return known.history.trials[number]

    def _updatable(self, trial_id: int) -> FrozenTrial:
        """A copy of a trial that may be written."""
        trial = self._own(trial_id) or self._trial(trial_id)
        if trial.state.is_finished():
            raise UpdateFinishedTrialError(f"trial {trial.number} has ended and stays as it is")
        return copy.copy(trial)

    def _write(self, trial: FrozenTrial, writing: Mapping[str, Any]) -> None:
        """Write to a trial: to one of this process soon, with what follows, to another at once."""
        trial_id = trial._trial_id
        if self._own(trial_id) is None:
            self._pending.add(trial_id, writing)
            self._pending.flush(trial_id)
            return
        with self._lock:
            self._trials[trial_id >> NUMBER_BITS].history.replace(trial)
        self._pending.add(trial_id, writing)

    def _attribute(self, key: str, value: Any) -> tuple[str, str]:
        return attribute(key, value, self._sender().keep)

    def _user_attribute(self, key: str, value: Any) -> tuple[str, str]:
        return user_attribute(key, value, self._sender().keep)

    def _send_writing(self, trial_id: int, **body: Any) -> None:
        self._send("write", trial_id >> NUMBER_BITS, number=trial_id & _NUMBER, **body)

    def _sender(self) -> CommandSender:
        if self._commands is None:
            raise UsageError("this storage is read-only: penstock.storage() can be written")
        return self._commands

    def _send(self, kind: str, study_id: int, **body: Any) -> dict[str, Any]:
        # What is written to a trial finds its study as it was when the trial was read.
        known = self._studies[study_id] if kind == "write" else self._study(study_id)
        return self._sender().send(kind, study=known.id, **body)


def _directions(row: StudyRow) -> list[StudyDirection]:
    return [StudyDirection[each.direction.upper()] for each in row.objectives]


def _metric_names(row: StudyRow) -> dict[str, Any]:
    """The attribute in which Optuna looks for the names of values (``Study.metric_names``)."""
    return {METRIC_NAMES: [each.metric for each in row.objectives]}
