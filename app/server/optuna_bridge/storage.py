"""The ledger as an Optuna storage, which Optuna's tools and ``optuna.Study`` can read and write.

Reads go through ``ledger_studies``. Writes are commands to the scheduler, the only process that
writes the ledger. A call that creates, takes or ends a trial, or that writes to a study, returns
once the ledger has the change. Other writes to a trial that this process has created or taken are
visible at once in this process. Such writes are sent with the trial's next change of state, or
after ``SEND_AFTER`` seconds (``tasks.objectives.pending``).

Trials that run on Penstock's devices are written by their own objectives. Other processes may write
only attributes to these trials.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import BaseStorage
from optuna.storages._base import DEFAULT_STUDY_NAME_PREFIX
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ....base.errors import UsageError
from ....tasks.objectives.pending import PendingWrites
from ....tasks.objectives.wire import check_compatible, record_of
from ....tasks.objectives.write_side import WriteSide
from ....wire.messages import number_text
from ...ledger.reader import Reader
from .ledger_studies import NUMBER, NUMBER_BITS, LedgerStudies, LedgerStudy


class CommandSender(Protocol):
    """The interface through which a storage sends commands to the scheduler.

    ``app.client.study.storage.SchedulerCommands`` implements it.
    """

    def send(self, kind: str, **body: Any) -> dict[str, Any]:
        """Send a command and return the scheduler's reply. Raises UsageError if it is refused."""

    def create(self, name: str, directions: Sequence[str]) -> None:
        """Create a study without code. The users of the study add and train its trials."""

    def keep(self, value: Any) -> str:
        """Store an object that JSON cannot represent. Return the text that stands for it."""


class LedgerStorage(WriteSide):
    """The studies of one ledger, for reading and writing. Several threads may use the object."""

    def __init__(
        self,
        reader: Reader,
        commands: CommandSender | None = None,
        reopen: Callable[[], BaseStorage] | None = None,
    ) -> None:
        """Create a storage. The storage is read-only if ``commands`` is None.

        ``reopen`` creates the same storage in another process. Without it, the storage cannot be
        pickled.
        """
        self._ledger = LedgerStudies(reader)
        super().__init__(self._ledger.shown)
        self._commands = commands
        self._reopen = reopen
        self._pending = PendingWrites(self._send_writing)

    def __reduce__(self) -> Any:
        if self._reopen is None:
            raise UsageError("this storage cannot be sent to other processes: create one there")
        return self._reopen, ()

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        """Create a study without code. Raises DuplicatedStudyError if its name is taken."""
        name = DEFAULT_STUDY_NAME_PREFIX + str(uuid.uuid4()) if study_name is None else study_name
        if any(name in study.names for study in self._ledger.shown().values()):
            raise DuplicatedStudyError(f"there is a study {name!r} already")
        self._sender().create(name, [each.name.lower() for each in directions])
        return self.get_study_id_from_name(name)

    def delete_study(self, study_id: int) -> None:
        self._send("delete", study_id)
        self._ledger.drop(study_id)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        record = record_of(template_trial, self._sender().keep)
        answer = self._send("add", study_id, **record)
        trial_id = (study_id << NUMBER_BITS) + int(answer["number"])
        if template_trial is None or template_trial.state is OptunaState.RUNNING:
            self._take(trial_id)
        return trial_id

    def set_trial_state_values(
        self, trial_id: int, state: OptunaState, values: Sequence[float] | None = None
    ) -> bool:
        """Take a waiting trial or end a trial. Return False if another process has taken it."""
        trial = self._updatable(trial_id)
        if state is OptunaState.RUNNING and trial.state is not OptunaState.WAITING:
            return False
        texts = [number_text(float(value)) for value in values or ()]
        try:
            self._pending.flush(trial_id, state=state.name.lower(), values=texts)
        except UsageError:
            if state is OptunaState.RUNNING and self._known(trial_id).state is not trial.state:
                return False
            raise
        if state is OptunaState.RUNNING:
            self._take(trial_id)
        else:
            self._of_trial(trial_id).leave(trial_id)
        return True

    def remove_session(self) -> None:
        """Send all writes that were not sent yet."""
        self._pending.flush_all()

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        # Only this trial is read: Optuna's own way reads all trials of the study.
        return self._known((study_id << NUMBER_BITS) + trial_number)._trial_id

    def _of_trial(self, trial_id: int) -> LedgerStudy:
        return self._ledger.of_trial(trial_id)

    def _known(self, trial_id: int) -> FrozenTrial:
        study = self._of_trial(trial_id)
        return study.own(trial_id) or study.known(trial_id)

    def _check_param(
        self, trial: FrozenTrial, name: str, internal: float, distribution: BaseDistribution
    ) -> None:
        trials = self._of_trial(trial._trial_id).trials_as_read()
        check_compatible(name, distribution, trials)

    def _take(self, trial_id: int) -> None:
        """Note that only this process writes a trial from now on, so that it is not read again."""
        self._known(trial_id)
        self._of_trial(trial_id).take(trial_id)

    def _write(self, trial: FrozenTrial, writing: Mapping[str, Any]) -> None:
        """Write to a trial.

        If this process has taken the trial, the write is sent later, together with other writes.
        Otherwise the write is sent at once.
        """
        trial_id = trial._trial_id
        study = self._of_trial(trial_id)
        own = study.own(trial_id) is not None
        if own:
            study.replace(trial)
        self._pending.add(trial_id, writing)
        if not own:
            self._pending.flush(trial_id)

    def _annotate(self, study_id: int, writing: Mapping[str, Any]) -> None:
        self._send("annotate", study_id, writing=writing)

    def _keep(self, value: Any) -> str:
        return self._sender().keep(value)

    def _send_writing(self, trial_id: int, **body: Any) -> None:
        number = trial_id & NUMBER
        try:
            self._send("write", trial_id >> NUMBER_BITS, number=number, **body)
        except KeyError as error:
            raise UsageError(f"trial {number} is gone: its study was deleted") from error

    def _sender(self) -> CommandSender:
        if self._commands is None:
            raise UsageError("this storage is read-only: penstock.storage() can be written")
        return self._commands

    def _send(self, kind: str, study_id: int, **body: Any) -> dict[str, Any]:
        # A write to a trial uses the study as it was when the trial was read.
        study_of = self._ledger.as_read if kind == "write" else self._ledger.study
        return self._sender().send(kind, study=study_of(study_id).row.id, **body)
