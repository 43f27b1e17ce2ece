"""The ledger as a read-only storage of Optuna, for optuna-dashboard, plots and importances.

Nothing is copied. Reads are incremental: one query tells whether anything has happened since the
last read. If so, the trials of the requested study are read again, and only its new epochs.

Optuna's ids are whole numbers. A study's id is the second in which it was created, so ids are the
same in every process and follow the order of the studies. Of two studies in one second the later
one has the next number. A trial's id is its study's id, shifted, plus its number. JavaScript holds
both exactly.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ...profiling.base.errors import UsageError
from ..host.settings import load
from ..host.tracebacks import to_the_user
from ..ledger.reader import Reader
from .frozen_trials import KeptResults

if TYPE_CHECKING:
    from ..ledger.rows import StudyRow

#: Bits of a trial's id that are its number. With a time in seconds that makes 52.
_NUMBER = 20


@to_the_user
def storage() -> BaseStorage:
    """This installation's studies as a storage for Optuna's own tools, read-only.

    For example ``optuna.load_study(study_name="digits", storage=penstock.storage())``. Methods that
    would write raise UsageError. Raises BackendError if the ledger does not answer.
    """
    return LedgerStorage(Reader(load().ledger_url))


class LedgerStorage(BaseStorage):
    """The studies of one ledger. Safe for several threads."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.RLock()
        self._seen = -1  # the newest event when the studies were read
        self._ids: dict[str, int] = {}
        self._studies: dict[int, StudyRow] = {}
        self._results: dict[int, KeptResults] = {}
        self._trials: dict[int, tuple[int, list[FrozenTrial]]] = {}

    def __getstate__(self) -> NoReturn:
        raise UsageError("a Penstock storage cannot be sent to other processes: create one there")

    # -- studies ---------------------------------------------------------------------------------

    def get_all_studies(self) -> list[FrozenStudy]:
        """All studies, oldest first."""
        with self._lock:
            self._look()
            return [
                FrozenStudy(
                    row.name,
                    None,
                    _attributes(row),
                    _system(row),
                    number,
                    directions=_directions(row),
                )
                for number, row in self._studies.items()
            ]

    def get_study_id_from_name(self, study_name: str) -> int:
        """The newest study of this name, or the one with this Penstock id. KeyError if absent."""
        with self._lock:
            self._look()
            for number, row in reversed(self._studies.items()):
                if study_name in (row.name, row.id):
                    return number
        raise KeyError(f"there is no study {study_name!r}")

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._study(study_id).name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return _directions(self._study(study_id))

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return _attributes(self._study(study_id))

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return _system(self._study(study_id))

    # -- trials ----------------------------------------------------------------------------------

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[OptunaState] | None = None,
    ) -> list[FrozenTrial]:
        """The trials by number, as ``Study.trials`` has them."""
        with self._lock:
            row = self._study(study_id)
            seen, trials = self._trials.get(study_id, (-1, []))
            if seen != self._seen:
                results = self._results.get(study_id)
                if results is None:
                    results = KeptResults(self._reader, row.id, study_id << _NUMBER)
                    self._results[study_id] = results
                trials = results.trials()
                self._trials[study_id] = (self._seen, trials)
            found = [t for t in trials if states is None or t.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return copy.deepcopy(self._trial(trial_id))

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        return self._trial((study_id << _NUMBER) + trial_number)._trial_id

    # -- what would write ------------------------------------------------------------------------

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        _refuse("a new study", "penstock.create_study() makes one")

    def delete_study(self, study_id: int) -> None:
        _refuse("deleting a study")

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        _refuse(f"the user attribute {key!r}")

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        _refuse(f"the system attribute {key!r}")

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        _refuse("a new trial", "Study.optimize() and Study.enqueue_trial() of Penstock make them")

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: Any
    ) -> None:
        _refuse(f"the parameter {param_name!r}")

    def set_trial_state_values(
        self, trial_id: int, state: OptunaState, values: Sequence[float] | None = None
    ) -> bool:
        _refuse("a trial's state")

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        _refuse("an intermediate value")

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        _refuse(f"the user attribute {key!r}")

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        _refuse(f"the system attribute {key!r}")

    # -- inside ----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the studies again if anything has happened. The lock is held."""
        newest = self._reader.newest()
        if newest == self._seen:
            return
        studies = self._reader.studies()
        taken = set(self._ids.values())
        for row in studies:
            if row.id not in self._ids:
                number = max(1, int(row.created_at))
                while number in taken:
                    number += 1
                self._ids[row.id] = number
                taken.add(number)
        self._studies = {self._ids[row.id]: row for row in studies}
        self._seen = newest

    def _study(self, study_id: int) -> StudyRow:
        with self._lock:
            self._look()
            if study_id not in self._studies:
                raise KeyError(f"there is no study {study_id}")
            return self._studies[study_id]

    def _trial(self, trial_id: int) -> FrozenTrial:
        for trial in self.get_all_trials(trial_id >> _NUMBER, deepcopy=False):
            if trial._trial_id == trial_id:
                return trial
        raise KeyError(f"there is no trial {trial_id}")


def _directions(row: StudyRow) -> list[StudyDirection]:
    return [StudyDirection[each.direction.upper()] for each in row.objectives]


def _attributes(row: StudyRow) -> dict[str, Any]:
    """What the dashboard shows of a study besides its trials."""
    return {
        "id": row.id,
        "status": row.status,
        "metric": row.metric,
        "strategy": row.strategy,
        "sampler": row.sampler,
        "seed": row.seed,
        "n_trials": row.n_trials,
    }


def _system(row: StudyRow) -> dict[str, Any]:
    """The attribute in which Optuna looks for the names of values (``Study.metric_names``)."""
    return {"study:metric_names": [each.metric for each in row.objectives]}


def _refuse(what: str, instead: str = "") -> NoReturn:
    more = f"; {instead}" if instead else ""
    raise UsageError(f"{what} cannot be written: to Optuna the ledger is read-only{more}")
