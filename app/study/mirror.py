"""A study in a storage of the user's (SQLite, a journal, ...), which follows ours.

Its trials and attributes are copied from there before the study is submitted. What happens
afterwards is written back: each trial when it is enqueued or has ended, once all earlier ones are
there. So plain Optuna can go on with it at any time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ...profiling.base.errors import UsageError


def is_elsewhere(storage: Any) -> bool:
    """Whether a storage is another one than this installation's ledger."""
    if storage is None:
        return False
    from ..optuna_bridge.storage import LedgerStorage

    return not isinstance(storage, LedgerStorage)


def only_name(storage: Any) -> str:
    """The name of the only study in a storage. Raises ValueError if there are none or several."""
    names = optuna.get_all_study_names(storage)
    if len(names) != 1:
        raise ValueError(f"study_name is needed: {storage} has {len(names)} studies")
    return names[0]


class Mirror:
    """A study in another storage, and how much of ours it has."""

    def __init__(self, storage: BaseStorage, study_id: int) -> None:
        self._storage = storage
        self._study_id = study_id
        self._copied = 0
        #: The ids there of all trials that are there, by number.
        self._ids: dict[int, int] = {}
        #: The ids there of trials that wait there, by number.
        self._waiting: dict[int, int] = {}

    @classmethod
    def open(
        cls, given: Any, name: str, directions: Sequence[str], *, may_exist: bool, must_exist: bool
    ) -> Mirror:
        """The study ``name`` in the storage ``given`` (a URL or an object), made where it may be.

        Raises UsageError if the storage cannot be opened, or has the study against the wishes.
        """
        try:
            storage = optuna.storages.get_storage(given)
            known = {study.study_name: study for study in storage.get_all_studies()}
        except Exception as error:  # whatever a driver raises
            raise UsageError.refuse("storage", given, f"one that opens ({error})") from error
        if name in known:
            if not may_exist:
                raise optuna.exceptions.DuplicatedStudyError(
                    f"{given} has a study {name!r} already: give this one another study_name, or"
                    " continue that one with load_if_exists=True"
                )
            return cls(storage, known[name]._study_id)
        if must_exist:
            raise KeyError(f"there is no study {name!r} in {given}")
        ways = [StudyDirection[each.upper()] for each in directions]
        return cls(storage, storage.create_new_study(ways, name))

    @property
    def directions(self) -> list[str]:
        """``minimize`` or ``maximize``, one for each objective."""
        return [each.name.lower() for each in self._storage.get_study_directions(self._study_id)]

    def copy_to(self, storage: BaseStorage, study_id: int) -> None:
        """Copy all of the study, of which ``storage`` has nothing yet."""
        for key, value in self._storage.get_study_user_attrs(self._study_id).items():
            storage.set_study_user_attr(study_id, key, value)
        for key, value in self._storage.get_study_system_attrs(self._study_id).items():
            storage.set_study_system_attr(study_id, key, value)
        trials = self._storage.get_all_trials(self._study_id)
        for trial in trials:
            storage.create_new_trial(study_id, trial)
            self._ids[trial.number] = trial._trial_id
            if trial.state is TrialState.WAITING:
                self._waiting[trial.number] = trial._trial_id
        self._copied = len(trials)

    def write_back(self, trials: Sequence[FrozenTrial], user_attrs: dict[str, Any]) -> None:
        """Add what waits or has ended, in the order of the trials' numbers, and the attributes."""
        for number in list(self._waiting):
            if trials[number].state.is_finished():
                self._end(self._waiting.pop(number), trials[number])
        for trial in trials[self._copied :]:
            if trial.state is TrialState.RUNNING:
                break
            trial_id = self._storage.create_new_trial(self._study_id, trial)
            self._ids[trial.number] = trial_id
            if trial.state is TrialState.WAITING:
                self._waiting[trial.number] = trial_id
            self._copied += 1
        known = self._storage.get_study_user_attrs(self._study_id)
        for key, value in user_attrs.items():
            if known.get(key) != value:
                self._storage.set_study_user_attr(self._study_id, key, value)
        self._storage.remove_session()

    def with_ids(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """``trials`` under the ids that they have there, by which that storage finds them."""
        found = []
        for trial in trials:
            known = copy.copy(trial)
            known._trial_id = self._ids.get(trial.number, trial._trial_id)
            found.append(known)
        return found

    def _end(self, trial_id: int, ended: FrozenTrial) -> None:
        """Write all of ``ended`` to the trial that waits there, unless plain Optuna has taken it.

        It then began and ended when it was written.
        """
        storage = self._storage
        if not storage.set_trial_state_values(trial_id, TrialState.RUNNING):
            return
        for name, value in ended.params.items():
            distribution = ended.distributions[name]
            internal = distribution.to_internal_repr(value)
            storage.set_trial_param(trial_id, name, internal, distribution)
        for step, value in ended.intermediate_values.items():
            storage.set_trial_intermediate_value(trial_id, step, value)
        for name, value in ended.user_attrs.items():
            storage.set_trial_user_attr(trial_id, name, value)
        for name, value in ended.system_attrs.items():
            storage.set_trial_system_attr(trial_id, name, value)
        storage.set_trial_state_values(trial_id, ended.state, ended.values)
