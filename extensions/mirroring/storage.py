"""The storage of a study that is kept in step with one in a storage of the user's.

It is the user's storage, but for that one study: this is read and written where it runs, in memory
or in the ledger, and brought into step (``mirror``). All ids are those of the user's storage, so
what Optuna's functions do with a trial and either of the two storages is the same. A trial that is
not there yet has a negative id, which goes on to be understood here when it is.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

from .mirror import Mirror, holds_ids


class MirroredStorage(BaseStorage):
    """The user's storage with one study that is ours."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        #: The study's attributes that are lists of ids, as numbers of trials. They are no results,
        #: and trainers and the user's storage, where trials have other ids, have their own.
        self._numbers: dict[str, list[int]] = {}

    # -- studies ---------------------------------------------------------------------------------

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        return self._mirror.storage.create_new_study(directions, study_name)

    def delete_study(self, study_id: int) -> None:
        self._mirror.storage.delete_study(study_id)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        storage, number = self._study(study_id)
        storage.set_study_user_attr(number, key, value)
        self._sync(study_id)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        storage, number = self._study(study_id)
        if study_id != self._mirror.study_id:
            storage.set_study_system_attr(number, key, value)
        elif holds_ids(key):
            self._numbers[key] = [self.get_trial_number_from_id(trial_id) for trial_id in value]
        else:
            storage.set_study_system_attr(number, key, value)
            self._mirror.storage.set_study_system_attr(study_id, key, value)

    def get_all_studies(self) -> list[FrozenStudy]:
        return self._mirror.storage.get_all_studies()

    def get_study_id_from_name(self, study_name: str) -> int:
        """Our study is known by its name here as well."""
        mirror = self._mirror
        if study_name == mirror.here.get_study_name_from_id(mirror.study_here):
            return mirror.study_id
        return mirror.storage.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._mirror.storage.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        storage, number = self._study(study_id)
        return storage.get_study_directions(number)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        self._sync(study_id)
        storage, number = self._study(study_id)
        return storage.get_study_user_attrs(number)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        storage, number = self._study(study_id)
        attrs = storage.get_study_system_attrs(number)
        if study_id != self._mirror.study_id:
            return attrs
        kept = {key: value for key, value in attrs.items() if not holds_ids(key)}
        return kept | {key: self._ids(numbers) for key, numbers in self._numbers.items()}

    # -- trials ----------------------------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        storage, number = self._study(study_id)
        trial_id = storage.create_new_trial(number, template_trial)
        if study_id != self._mirror.study_id:
            return trial_id
        self._mirror.sync()
        return self._mirror.id_of(storage.get_trial_number_from_id(trial_id))

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        storage, number = self._trial(trial_id)
        storage.set_trial_param(number, param_name, param_value_internal, distribution)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        storage, number = self._trial(trial_id)
        changed = storage.set_trial_state_values(number, state, values)
        if state.is_finished():
            self._mirror.sync()
        return changed

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        storage, number = self._trial(trial_id)
        storage.set_trial_intermediate_value(number, step, intermediate_value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        storage, number = self._trial(trial_id)
        storage.set_trial_user_attr(number, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        storage, number = self._trial(trial_id)
        storage.set_trial_system_attr(number, key, value)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        storage, number = self._trial(trial_id)
        trial = storage.get_trial(number)
        return trial if storage is self._mirror.storage else self._with_id(trial)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """The trials by number, with what was written on either side."""
        self._sync(study_id)
        storage, number = self._study(study_id)
        trials = storage.get_all_trials(number, deepcopy, states)
        if study_id != self._mirror.study_id:
            return trials
        return [self._with_id(trial) for trial in trials]

    def remove_session(self) -> None:
        self._mirror.here.remove_session()
        self._mirror.storage.remove_session()

    # -- inside ----------------------------------------------------------------------------------

    def _sync(self, study_id: int) -> None:
        if study_id == self._mirror.study_id:
            self._mirror.sync()

    def _study(self, study_id: int) -> tuple[BaseStorage, int]:
        """Where the study is, and its id there."""
        mirror = self._mirror
        if study_id == mirror.study_id:
            return mirror.here, mirror.study_here
        return mirror.storage, study_id

    def _trial(self, trial_id: int) -> tuple[BaseStorage, int]:
        """Where the trial is, and its id there. KeyError if it is one of ours that is not."""
        mirror = self._mirror
        number = mirror.number_of(trial_id)
        if number is None:
            return mirror.storage, trial_id
        here = mirror.here
        return here, here.get_trial_id_from_study_id_trial_number(mirror.study_here, number)

    def _ids(self, numbers: Sequence[int]) -> list[int]:
        return [self._mirror.id_of(number) for number in numbers]

    def _with_id(self, trial: FrozenTrial) -> FrozenTrial:
        known = copy.copy(trial)
        known._trial_id = self._mirror.id_of(trial.number)
        return known
