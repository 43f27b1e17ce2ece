"""A study in the user's storage (SQLite, a journal, ...), with which our study is kept in step.

The trials and attributes of the user's study are copied to ours before ours is submitted. From then
on ``Mirror.sync`` copies new entries in both directions. Each of our trials is copied to the user's
storage when it waits or has ended, after all earlier trials: so plain Optuna can continue the study
at any time. Trials that other studies and processes have written to the user's storage are copied
to ours, unless the scheduler samples, because it accepts no trials from elsewhere.

A trial may have different numbers on the two sides: each side numbers trials as they arrive.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Self

import optuna
from optuna.distributions import CategoricalDistribution, distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ...base.errors import UsageError

#: The prefix of system attributes in which a user's study notes our studies (``late_trials``).
NOTE = "penstock:study:"


def holds_ids(key: str) -> bool:
    """Return True if a study's system attribute is a list of trial ids, as Optuna's GAs keep."""
    return ":parent:" in key


class Mirror:
    """A study in the user's storage (*there*), and the state of its copy in ours (*here*)."""

    def __init__(self, storage: BaseStorage, study_id: int) -> None:
        self.storage = storage
        self.study_id = study_id
        #: The storage of our study; ``follow`` sets it.
        self.here: BaseStorage
        self.study_here: int
        self._scheduled = False
        self._lock = threading.RLock()
        self._ids: dict[int, int] = {}  # ids there, by our trials' numbers
        self._numbers: dict[int, int] = {}  # our trials' numbers, by ids there
        self._foreign: set[int] = set()  # numbers of trials that ended there first
        self._open: set[int] = set()  # numbers of trials that had not ended on both sides
        self._taken: set[int] = set()  # numbers of trials that another process runs
        self._attrs: dict[str, Any] = {}  # user attributes that both sides have

    @classmethod
    def open(
        cls, given: Any, name: str, directions: Sequence[str], *, may_exist: bool, must_exist: bool
    ) -> Self:
        """Open the study ``name`` in the storage ``given`` (a URL or an object), or create it.

        Raises UsageError if the storage cannot be opened, ``DuplicatedStudyError`` if the study
        exists and ``may_exist`` is False, and KeyError if it is missing and ``must_exist`` is True.
        """
        try:
            storage = optuna.storages.get_storage(given)
            studies = {study.study_name: study for study in storage.get_all_studies()}
        except Exception as error:  # a driver may raise anything
            raise UsageError.refuse(
                "storage", given, f"a storage that can be opened ({error})"
            ) from error
        if name in studies:
            if not may_exist:
                raise optuna.exceptions.DuplicatedStudyError(
                    f"{given} has a study {name!r} already: give this one another study_name, or"
                    " continue that one with load_if_exists=True"
                )
            return cls(storage, studies[name]._study_id)
        if must_exist:
            raise KeyError(f"there is no study {name!r} in {given}")
        ways = [StudyDirection[each.upper()] for each in directions]
        return cls(storage, storage.create_new_study(ways, name))

    @property
    def directions(self) -> list[str]:
        """The directions, ``minimize`` or ``maximize``, one for each objective."""
        return [each.name.lower() for each in self.storage.get_study_directions(self.study_id)]

    def copy_to(self, storage: BaseStorage, study_id: int) -> None:
        """Copy the whole study to the empty study ``study_id`` of ``storage``, and follow it."""
        self.follow(storage, study_id)
        for key, value in self.storage.get_study_system_attrs(self.study_id).items():
            if not (holds_ids(key) or key.startswith(NOTE)):
                storage.set_study_system_attr(study_id, key, value)
        self.sync()

    def follow(self, storage: BaseStorage, study_id: int, *, scheduled: bool = False) -> None:
        """Use the study ``study_id`` in ``storage``, with the same trials, as ours from now on.

        If ``scheduled``, our study begins with the waiting trials, in order, and takes no other
        trials from there.
        """
        with self._lock:
            self.here, self.study_here = storage, study_id
            if scheduled and not self._scheduled:
                waited = [self._ids[number] for number in sorted(self._open - self._taken)]
                for table in (self._ids, self._numbers, self._foreign, self._open, self._taken):
                    table.clear()
                for number, trial_id in enumerate(waited):
                    self._link(number, trial_id)
                    self._open.add(number)
            self._scheduled = scheduled

    def sync(self) -> None:
        """Copy new trials and attributes of either side to the other side."""
        with self._lock:
            own_trials = self.here.get_all_trials(self.study_here, deepcopy=False)
            foreign_trials = self.storage.get_all_trials(self.study_id, deepcopy=False)
            by_id = {trial._trial_id: trial for trial in foreign_trials}
            for number in sorted(self._open):
                if number < len(own_trials):  # the scheduler may not have made the trial yet
                    self._compare(own_trials[number], by_id[self._ids[number]])
            for trial in own_trials:
                if trial.number not in self._ids:
                    if trial.state is TrialState.RUNNING:
                        break
                    _check_choices(self.storage, trial)
                    trial_id = self.storage.create_new_trial(self.study_id, trial)
                    self._note(trial.number, trial_id, trial.state)
            if not self._scheduled:
                self._take(foreign_trials)
            self._sync_attrs()
            self.storage.remove_session()

    def id_of(self, number: int) -> int:
        """Return the id that our trial has there; a negative id while the trial is not there."""
        return self._ids.get(number, ~number)

    def number_of(self, trial_id: int) -> int | None:
        """Return the number of the trial with this id (see ``id_of``); None if it is not ours."""
        return ~trial_id if trial_id < 0 else self._numbers.get(trial_id)

    def is_foreign(self, number: int) -> bool:
        """Return True if the trial was run or added outside of Penstock."""
        return number in self._foreign

    def _link(self, number: int, trial_id: int) -> None:
        self._ids[number], self._numbers[trial_id] = trial_id, number

    def _note(self, number: int, trial_id: int, state: TrialState) -> None:
        self._link(number, trial_id)
        if not state.is_finished():
            self._open.add(number)

    def _take(self, foreign_trials: Sequence[FrozenTrial]) -> None:
        """Copy the trials that exist only there to our study."""
        for trial in foreign_trials:
            if trial._trial_id in self._numbers:
                continue
            trial_id = self.here.create_new_trial(self.study_here, trial)
            number = self.here.get_trial_number_from_id(trial_id)
            self._note(number, trial._trial_id, trial.state)
            if trial.state.is_finished():
                self._foreign.add(number)
            elif trial.state is TrialState.RUNNING:
                self._taken.add(number)

    def _compare(self, own_trial: FrozenTrial, foreign_trial: FrozenTrial) -> None:
        """Update a trial that both sides have on the side that is behind.

        If both sides have run the trial, each side keeps its own result.
        """
        number, waits = own_trial.number, TrialState.WAITING
        if own_trial.state.is_finished():
            if foreign_trial.state is waits:
                end_waiting(self.storage, foreign_trial._trial_id, own_trial)
            self._open.discard(number)
            return
        if (
            own_trial.state is waits
            and foreign_trial.state is not waits
            and _begin(self.here, own_trial._trial_id)
        ):
            self._taken.add(number)
        if foreign_trial.state.is_finished():
            if number in self._taken:
                self._foreign.add(number)
                _end(self.here, own_trial._trial_id, foreign_trial)
            self._open.discard(number)

    def _sync_attrs(self) -> None:
        """Copy user attributes that were set since the last call on one side to the other side."""
        own_attrs = self.here.get_study_user_attrs(self.study_here)
        foreign_attrs = self.storage.get_study_user_attrs(self.study_id)
        for key, value in _news(own_attrs, self._attrs).items():
            self.storage.set_study_user_attr(self.study_id, key, value)
            self._attrs[key] = foreign_attrs[key] = value
        if self._scheduled:
            return  # attributes there may be about another study
        for key, value in _news(foreign_attrs, self._attrs).items():
            self.here.set_study_user_attr(self.study_here, key, value)
            self._attrs[key] = value


def _news(attrs: dict[str, Any], previous: dict[str, Any]) -> dict[str, Any]:
    return {k: value for k, value in attrs.items() if k not in previous or previous[k] != value}


def end_waiting(storage: BaseStorage, trial_id: int, ended: FrozenTrial) -> bool:
    """Write all of ``ended`` to a waiting trial; return False if another process has taken it."""
    _check_choices(storage, ended)
    if not _begin(storage, trial_id):
        return False
    _end(storage, trial_id, ended)
    return True


def _check_choices(storage: BaseStorage, trial: FrozenTrial) -> None:
    """Raise UsageError for choices that JSON cannot hold, unless ``storage`` is in memory."""
    if isinstance(storage, InMemoryStorage):
        return
    for name, distribution in trial.distributions.items():
        if not isinstance(distribution, CategoricalDistribution):
            continue
        try:
            distribution_to_json(distribution)
        except TypeError:
            raise UsageError(
                f"the storage cannot hold the choices of {name!r}, {distribution.choices}, since it"
                " has them as JSON: let the objective choose by name, or create the study without"
                " storage",
                "storage",
            ) from None


def _begin(storage: BaseStorage, trial_id: int) -> bool:
    """Take a waiting trial; return False if another process was faster."""
    try:
        return storage.set_trial_state_values(trial_id, TrialState.RUNNING)
    except UpdateFinishedTrialError:
        return False


def _end(storage: BaseStorage, trial_id: int, ended: FrozenTrial) -> None:
    """Write all of ``ended`` to a taken trial, which begins and ends at the time of writing."""
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
