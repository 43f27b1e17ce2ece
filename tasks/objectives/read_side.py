"""The reading half of Optuna's storage, written once, over any object that shows studies.

Penstock has several storages of Optuna's kind: the ledger for clients, an objective's study in its
trainer, a user's storage with one study of Penstock's, and the engine's trials for samplers. Optuna
asks all of them the same questions, which ``ReadSide`` answers from the studies shown. A storage is
a subclass that adds the writes it allows; all other writes are refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState


class ShownStudy(Protocol):
    """A study in its present state. Callers may modify its dicts and its list, but no trial."""

    @property
    def names(self) -> tuple[str, ...]:
        """The study's name, and other names by which it is found."""

    @property
    def directions(self) -> Sequence[StudyDirection]:
        """The direction of each objective."""

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The attributes that the study's users wrote."""

    @property
    def system_attrs(self) -> dict[str, Any]:
        """The attributes that Optuna's own code writes."""

    def trials(self, states: Container[TrialState] | None) -> list[FrozenTrial]:
        """Return the trials in these states by number, or all trials if ``states`` is None."""

    def trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial whose dicts the caller may modify.

        Raises ``KeyError`` if there is none.
        """


def _refused(what: str) -> Callable[..., Any]:
    def refuse(self: ReadSide, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{what} is not possible {self.WHERE}")

    return refuse


class ReadSide(BaseStorage):
    """An Optuna storage that can only be read. Writes raise an error.

    Its contents are the studies that the function ``shown`` returns.
    """

    #: The end of the sentence by which a write is refused.
    WHERE = "in a storage that is only read"

    def __init__(self, shown: Callable[[], Mapping[int, ShownStudy]]) -> None:
        """Read from ``shown``, which returns the present studies by Optuna's ids, oldest first."""
        self._shown = shown

    def get_all_studies(self) -> list[FrozenStudy]:
        return [
            FrozenStudy(
                study.names[0],
                None,
                study.user_attrs,
                study.system_attrs,
                number,
                directions=list(study.directions),
            )
            for number, study in self._shown().items()
        ]

    def get_study_id_from_name(self, study_name: str) -> int:
        """Return the id of the newest study of this name. Raises ``KeyError`` if there is none."""
        for number, study in reversed(list(self._shown().items())):
            if study_name in study.names:
                return number
        raise KeyError(f"there is no study {study_name!r}")

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._study(study_id).names[0]

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return list(self._study(study_id).directions)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study(study_id).user_attrs

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study(study_id).system_attrs

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        trials = self._study(study_id).trials(states)
        return copy.deepcopy(trials) if deepcopy else trials

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._of_trial(trial_id).trial(trial_id)

    def _study(self, study_id: int) -> ShownStudy:
        studies = self._shown()
        if study_id not in studies:
            raise KeyError(f"there is no study {study_id}")
        return studies[study_id]

    def _of_trial(self, trial_id: int) -> ShownStudy:
        """Return the study of a trial: the only study, unless a subclass overrides this."""
        return self._study(0)

    create_new_study = _refused("a new study in this storage")
    delete_study = _refused("deleting a study")
    set_study_user_attr = set_study_system_attr = _refused("an attribute of the study")
    create_new_trial = _refused("a new trial")
    set_trial_param = _refused("a parameter of a trial")
    set_trial_state_values = _refused("a new state of a trial")
    set_trial_intermediate_value = _refused("an intermediate value")
    set_trial_user_attr = set_trial_system_attr = _refused("an attribute of a trial")


@dataclass
class GivenStudy:
    """A study of the given trials."""

    names: tuple[str, ...]
    directions: Sequence[StudyDirection]
    given: Sequence[FrozenTrial]
    user_attrs: dict[str, Any] = field(default_factory=dict)
    system_attrs: dict[str, Any] = field(default_factory=dict)

    def trials(self, states: Container[TrialState] | None) -> list[FrozenTrial]:
        """Return the trials in these states, or all trials if ``states`` is None."""
        return selected(self.given, states)

    def trial(self, trial_id: int) -> FrozenTrial:
        """Return a copy of a trial. Raises ``KeyError`` if there is none."""
        matches = [trial for trial in self.given if trial._trial_id == trial_id]
        if not matches:
            raise KeyError(f"there is no trial {trial_id}")
        return with_own_dicts(matches[0])


def selected(
    trials: Iterable[FrozenTrial], states: Container[TrialState] | None
) -> list[FrozenTrial]:
    """Return the trials in these states, or all trials if ``states`` is None."""
    return [trial for trial in trials if states is None or trial.state in states]


def with_own_dicts(trial: FrozenTrial) -> FrozenTrial:
    """Return a copy of a trial, into whose dicts Optuna may write."""
    copied = copy.copy(trial)
    for name in ("params", "distributions", "user_attrs", "system_attrs", "intermediate_values"):
        setattr(copied, name, dict(getattr(trial, name)))
    return copied


def changed(trial: FrozenTrial, **entries: tuple[Any, Any]) -> FrozenTrial:
    """Return a copy of a trial with one more (key, value) entry in each of the named dicts."""
    copied = copy.copy(trial)
    for name, (key, value) in entries.items():
        setattr(copied, name, {**getattr(trial, name), key: value})
    return copied
