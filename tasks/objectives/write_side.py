"""The writing half of Optuna's storage, for storages whose writes go to the scheduler.

Writes take the form of messages (``wire``). Each storage decides how and when they are sent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial

from ...wire.messages import number_text
from .read_side import ReadSide, changed
from .wire import attribute, suggestion, user_attribute


class WriteSide(ReadSide):
    """A storage of studies whose trials and attributes may be written."""

    @abstractmethod
    def _annotate(self, study_id: int, writing: Mapping[str, Any]) -> None:
        """Send a write about a study."""

    @abstractmethod
    def _write(self, trial: FrozenTrial, writing: Mapping[str, Any]) -> None:
        """Send a write about a trial; ``trial`` is the trial after the write."""

    @abstractmethod
    def _keep(self, value: Any) -> str:
        """Store an object that is no JSON, and return the text of its placeholder."""

    @abstractmethod
    def _known(self, trial_id: int) -> FrozenTrial:
        """Return a trial as it is now. Raises ``KeyError`` if there is none."""

    @abstractmethod
    def _check_param(
        self, trial: FrozenTrial, name: str, internal: float, distribution: BaseDistribution
    ) -> None:
        """Raise ``ValueError`` if a trial may not have this parameter."""

    def _updatable(self, trial_id: int) -> FrozenTrial:
        """Return a trial that may be written. Raises ``UpdateFinishedTrialError`` for others."""
        trial = self._known(trial_id)
        if trial.state.is_finished():
            raise UpdateFinishedTrialError(f"trial {trial.number} has ended and stays as it is")
        return trial

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self._annotate(study_id, {"user_attrs": [user_attribute(key, value, self._keep)]})

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._annotate(study_id, {"system_attrs": [attribute(key, value, self._keep)]})

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        trial = self._updatable(trial_id)
        self._check_param(trial, param_name, param_value_internal, distribution)
        value = distribution.to_external_repr(param_value_internal)
        entries = {"params": (param_name, value), "distributions": (param_name, distribution)}
        entry = suggestion(param_name, param_value_internal, distribution)
        self._write(changed(trial, **entries), {"suggestions": [entry]})

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        trial = changed(self._updatable(trial_id), intermediate_values=(step, intermediate_value))
        self._write(trial, {"steps": [(step, number_text(intermediate_value))]})

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        entry = user_attribute(key, value, self._keep)
        self._write(changed(trial, user_attrs=(key, value)), {"user_attrs": [entry]})

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        entry = attribute(key, value, self._keep)
        self._write(changed(trial, system_attrs=(key, value)), {"system_attrs": [entry]})
