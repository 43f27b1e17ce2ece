"""A study's trials as Optuna's samplers read them, kept up to date from the engine's own.

What Optuna calls COMPLETE, PRUNED, FAIL and RUNNING is decided by the results at hand:

* a trial that reached a rung of its strategy counts as PRUNED at the last rung it reached, with its
  value there, also while it is paused, promoted or stopped: TPE learns from it at once, and only
  compares values of equal training;
* a completed trial is COMPLETE, a failed or cancelled one is FAIL, and one without a rung yet is
  RUNNING: TPE keeps away from it (constant liar).

A trial may so go back from PRUNED to a later rung, which no storage of Optuna's allows: therefore
one of our own, that stores nothing and shows what the engine's trials say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ..scheduler.strategy import looks_of
from ..scheduler.study import Scalar, StudySpec
from ..scheduler.trial import Trial, TrialState

Distributions = Mapping[str, BaseDistribution]

_AT_REST = (TrialState.PAUSED, TrialState.STOPPED, TrialState.COMPLETED)
_GONE = (TrialState.FAILED, TrialState.CANCELLED)


class View:
    """The trials of one study over ``dists``, each converted once for each of its results."""

    def __init__(self, spec: StudySpec, dists: Distributions) -> None:
        self.dists = dists
        self.direction = StudyDirection[spec.direction.upper()]
        self.shown: list[FrozenTrial] = []
        self._looks = looks_of(spec.strategy)
        self._kept: dict[str, tuple[object, FrozenTrial]] = {}

    def show(self, trials: Sequence[Trial]) -> None:
        """Show these trials and no others."""
        shown = []
        for trial in trials:
            key = (trial.state, trial.epoch, trial.params)
            kept = self._kept.get(trial.id)
            if kept is None or kept[0] != key:
                kept = (key, self._freeze(trial))
                self._kept[trial.id] = kept
            shown.append(kept[1])
        self.shown = shown

    def show_equals(self, trials: Sequence[Trial], least: int) -> None:
        """Show the results at the highest epoch looked at that has ``least`` of them; else none.

        They count as COMPLETE: for samplers that take every result for one of full training.
        """
        if not self._looks:
            self.show(trials)
            return
        counts = Counter(epoch for trial in trials for epoch in trial.values)
        there = (epoch for epoch in self._looks if counts[epoch] >= least)
        highest = max(there, default=0)
        self.shown = []
        for trial in trials:
            state, value = OptunaState.RUNNING, trial.values.get(highest)
            if value is not None:
                state = OptunaState.COMPLETE
            elif trial.state in _GONE:
                state = OptunaState.FAIL
            self.shown.append(self._frozen(trial.number, state, value, self._known(trial), {}))

    def running(self, number: int, params: Mapping[str, Scalar] | None = None) -> FrozenTrial:
        """A trial without results; its parameters as far as they are known."""
        return self._frozen(number, OptunaState.RUNNING, None, params or {}, {})

    def study(self) -> optuna.Study:
        """What samplers take for the study. Made anew for each draw, because Optuna's caches."""
        # A Study wants a sampler of its own; ours are handed the study instead.
        return optuna.Study("view", _Storage(self), sampler=_UNUSED)

    def _freeze(self, trial: Trial) -> FrozenTrial:
        state, value, values = OptunaState.RUNNING, None, {}
        reached = self._reached(trial)
        if trial.state in _GONE:
            state = OptunaState.FAIL
        elif trial.state is TrialState.COMPLETED and trial.value is not None:
            state, value = OptunaState.COMPLETE, trial.value
        elif reached is not None:
            state, values = OptunaState.PRUNED, {reached: trial.values[reached]}
        return self._frozen(trial.number, state, value, self._known(trial), values)

    def _known(self, trial: Trial) -> dict[str, Scalar]:
        return {name: value for name, value in trial.params if self._fits(name, value)}

    def _reached(self, trial: Trial) -> int | None:
        """The epoch at which the trial is compared with others; None: at none yet."""
        if trial.state in _AT_REST and trial.epoch in trial.values:
            return trial.epoch
        return max((epoch for epoch in self._looks if epoch in trial.values), default=None)

    def _fits(self, name: str, value: Scalar) -> bool:
        """Another trial may have drawn the name from another range, or be the user's own idea."""
        if name not in self.dists:
            return False
        dist = self.dists[name]
        try:
            return dist._contains(dist.to_internal_repr(value))
        except ValueError:  # not one of the choices, or no number at all
            return False

    def _frozen(
        self,
        number: int,
        state: OptunaState,
        value: float | None,
        params: Mapping[str, Scalar],
        values: dict[int, float],
    ) -> FrozenTrial:
        return FrozenTrial(
            number=number,
            trial_id=number,
            state=state,
            value=value,
            datetime_start=None,
            datetime_complete=None,
            params=dict(params),
            distributions={name: self.dists[name] for name in params},
            user_attrs={},
            system_attrs={},
            intermediate_values=values,
        )


class _Storage(InMemoryStorage):
    """What a sampler reads of a storage, over a view."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    def get_study_id_from_name(self, study_name: str) -> int:
        """There is one study."""
        return 0

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Its direction."""
        return [self._view.direction]

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[OptunaState] | None = None,
    ) -> list[FrozenTrial]:
        """What the view shows."""
        return [t for t in self._view.shown if states is None or t.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """TPE notes its joint draw here for other processes; we are the only one."""


_UNUSED = RandomSampler(seed=0)
