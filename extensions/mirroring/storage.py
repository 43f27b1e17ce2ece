"""The storage of a study that is kept in step with a study in the user's storage.

This storage behaves as the user's storage does, except for that one study. The study is read and
written where it runs, in memory or in the ledger, and is kept in step (``mirror``). All ids are
those of the user's storage, so Optuna's functions work alike with a trial and either storage. A
trial that is not in the user's storage yet has a negative id, which stays valid here afterwards.
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

from ...tasks.objectives.read_side import ReadSide
from .mirror import Mirror, holds_ids


class _Theirs:
    """A study of the user's storage, with the storage's own ids."""

    def __init__(self, storage: BaseStorage, study_id: int) -> None:
        self.place = self._storage, self._id = storage, study_id

    def place_of(self, trial_id: int) -> tuple[BaseStorage, int]:
        """Return the storage of a trial, and the trial's id there. Raises KeyError if missing."""
        return self._storage, trial_id

    @property
    def names(self) -> tuple[str]:
        """The study's name."""
        return (self._storage.get_study_name_from_id(self._id),)

    @property
    def directions(self) -> list[StudyDirection]:
        """The direction of each objective."""
        return self._storage.get_study_directions(self._id)

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The attributes that users wrote."""
        return self._storage.get_study_user_attrs(self._id)

    @property
    def system_attrs(self) -> dict[str, Any]:
        """The attributes that Optuna's own code writes."""
        return self._storage.get_study_system_attrs(self._id)

    def trials(self, states: Container[TrialState] | None) -> list[FrozenTrial]:
        """Return the trials in these states, or all trials if ``states`` is None."""
        return self._storage.get_all_trials(self._id, deepcopy=False, states=states)

    def trial(self, trial_id: int) -> FrozenTrial:
        """Return a copy of a trial. Raises KeyError if the study has no such trial."""
        storage, number = self.place_of(trial_id)
        return storage.get_trial(number)


class _Ours(_Theirs):
    """Our study, under the ids of the user's storage."""

    def __init__(self, mirror: Mirror, numbers: dict[str, list[int]]) -> None:
        super().__init__(mirror.here, mirror.study_here)
        self._mirror = mirror
        self._numbers = numbers

    @property
    def names(self) -> tuple[str]:
        """The study's name in the user's storage."""
        return (self._mirror.storage.get_study_name_from_id(self._mirror.study_id),)

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The attributes that users wrote on either side."""
        self._mirror.sync()
        return super().user_attrs

    @property
    def system_attrs(self) -> dict[str, Any]:
        """The attributes that Optuna's own code wrote to our study."""
        attrs = {key: value for key, value in super().system_attrs.items() if not holds_ids(key)}
        ids = {
            key: [self._mirror.id_of(n) for n in numbers] for key, numbers in self._numbers.items()
        }
        return attrs | ids

    def trials(self, states: Container[TrialState] | None) -> list[FrozenTrial]:
        """Return the trials, after a sync that includes entries of either side."""
        self._mirror.sync()
        return [self._with_id(trial) for trial in super().trials(states)]

    def trial(self, trial_id: int) -> FrozenTrial:
        """Return a copy of a trial, with the id that the trial has in the user's storage."""
        return self._with_id(super().trial(trial_id))

    def place_of(self, trial_id: int) -> tuple[BaseStorage, int]:
        """Return our storage, and our id of the trial with this id in the user's storage."""
        number = self._mirror.number_of(trial_id)
        assert number is not None
        storage = self._storage
        return storage, storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def _with_id(self, trial: FrozenTrial) -> FrozenTrial:
        renumbered = copy.copy(trial)
        renumbered._trial_id = self._mirror.id_of(trial.number)
        return renumbered


class MirroredStorage(ReadSide):
    """The user's storage, with our study in place of one of its studies."""

    def __init__(self, mirror: Mirror) -> None:
        super().__init__(dict)  # no studies: they are looked up in the storages
        self._mirror = mirror
        #: The study's attributes that are lists of trial ids, with our trials' numbers in place of
        #: ids. They are not copied: trainers and the user's storage keep lists of their own.
        self._numbers: dict[str, list[int]] = {}

    def get_all_studies(self) -> list[FrozenStudy]:
        return self._mirror.storage.get_all_studies()

    def get_study_id_from_name(self, study_name: str) -> int:
        """Return a study's id by its name; our study is also found by its own name."""
        mirror = self._mirror
        if study_name == mirror.here.get_study_name_from_id(mirror.study_here):
            return mirror.study_id
        return mirror.storage.get_study_id_from_name(study_name)

    def _study(self, study_id: int) -> _Theirs:
        mirror = self._mirror
        if study_id == mirror.study_id:
            return _Ours(mirror, self._numbers)
        return _Theirs(mirror.storage, study_id)

    def _of_trial(self, trial_id: int) -> _Theirs:
        mirror = self._mirror
        number = mirror.number_of(trial_id)
        return _Theirs(mirror.storage, -1) if number is None else _Ours(mirror, self._numbers)

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        return self._mirror.storage.create_new_study(directions, study_name)

    def delete_study(self, study_id: int) -> None:
        self._mirror.storage.delete_study(study_id)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        storage, number = self._study(study_id).place
        storage.set_study_user_attr(number, key, value)
        if study_id == self._mirror.study_id:
            self._mirror.sync()

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        storage, number = self._study(study_id).place
        if study_id != self._mirror.study_id:
            storage.set_study_system_attr(number, key, value)
        elif holds_ids(key):
            self._numbers[key] = [self.get_trial_number_from_id(trial_id) for trial_id in value]
        else:
            storage.set_study_system_attr(number, key, value)
            self._mirror.storage.set_study_system_attr(study_id, key, value)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        storage, number = self._study(study_id).place
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
        storage, number = self._of_trial(trial_id).place_of(trial_id)
        storage.set_trial_param(number, param_name, param_value_internal, distribution)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        storage, number = self._of_trial(trial_id).place_of(trial_id)
        changed = storage.set_trial_state_values(number, state, values)
        if state.is_finished():
            self._mirror.sync()
        return changed

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        storage, number = self._of_trial(trial_id).place_of(trial_id)
        storage.set_trial_intermediate_value(number, step, intermediate_value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        storage, number = self._of_trial(trial_id).place_of(trial_id)
        storage.set_trial_user_attr(number, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        storage, number = self._of_trial(trial_id).place_of(trial_id)
        storage.set_trial_system_attr(number, key, value)

    def remove_session(self) -> None:
        self._mirror.here.remove_session()
        self._mirror.storage.remove_session()
