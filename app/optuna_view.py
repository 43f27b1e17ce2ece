"""A study's trials as Optuna's samplers read them, kept up to date from the engine's own.

What Optuna calls COMPLETE, FAIL and RUNNING is decided by the results at hand:

* under a strategy with rungs, results are shown of one rung only: the highest that enough trials
  have reached. Those are COMPLETE with their value there, also while they are paused, promoted or
  stopped; so values of equal training are compared, and a sampler learns from them at once;
* without rungs a completed trial is COMPLETE;
* a failed or cancelled one is FAIL, and one without a result yet RUNNING: TPE keeps away from it
  (constant liar).

Optuna's own way, PRUNED at the last rung, has TPE take any trial of a higher rung for a better one.
With promotions that is the few that came first, and TPE stays with them (docs/measured.md).

A trial goes from one rung to another, which no storage of Optuna's allows: therefore one of our
own, that stores nothing and shows what the engine's trials say.
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
from ..scheduler.study import Observation, Scalar, StudySpec
from ..scheduler.trial import Trial, TrialState

Distributions = Mapping[str, BaseDistribution]

_GONE = (TrialState.FAILED, TrialState.CANCELLED)


class View:
    """The trials of one study over ``dists``, each converted once for each of its results."""

    def __init__(self, spec: StudySpec, dists: Distributions) -> None:
        self.dists = dists
        self.direction = StudyDirection[spec.direction.upper()]
        self.shown: list[FrozenTrial] = []
        self._looks = looks_of(spec.strategy)
        self._kept: dict[str, tuple[object, FrozenTrial]] = {}

    def show(self, trials: Sequence[Trial], least: int, others: Sequence[Observation] = ()) -> None:
        """Show these trials; of the rungs the highest that ``least`` of them have reached.

        Results of ``others`` count and are shown where they have a value there.
        """
        counts = Counter(epoch for trial in trials for epoch in trial.values)
        counts += Counter(epoch for each in others for epoch in self._values(each))
        reached = (epoch for epoch in self._looks if counts[epoch] >= least)
        rung = max(reached, default=0)
        self.shown = []
        for number, each in enumerate(others, start=-len(others)):  # they are the oldest
            value = self._values(each).get(rung)
            if value is not None:
                params = {name: v for name, v in each.params if self._fits(name, v)}
                self.shown.append(self._frozen(number, OptunaState.COMPLETE, value, params))
        for trial in trials:
            value = trial.values.get(rung) if self._looks else trial.value
            if trial.state in _GONE:
                state, value = OptunaState.FAIL, None
            elif value is None or not (self._looks or trial.state is TrialState.COMPLETED):
                state, value = OptunaState.RUNNING, None
            else:
                state = OptunaState.COMPLETE
            key = (state, value, trial.params)
            kept = self._kept.get(trial.id)
            if kept is None or kept[0] != key:
                known = {name: v for name, v in trial.params if self._fits(name, v)}
                kept = (key, self._frozen(trial.number, state, value, known))
                self._kept[trial.id] = kept
            self.shown.append(kept[1])

    def running(self, number: int, params: Mapping[str, Scalar] | None = None) -> FrozenTrial:
        """A trial without results; its parameters as far as they are known."""
        return self._frozen(number, OptunaState.RUNNING, None, params or {})

    def study(self) -> optuna.Study:
        """What samplers take for the study. Made anew for each draw, because Optuna's caches."""
        # A Study wants a sampler of its own; ours are handed the study instead.
        return optuna.Study("view", _Storage(self), sampler=_UNUSED)

    def _values(self, known: Observation) -> dict[int, float]:
        """By rung; the whole training is the last one, or 0 where there are no rungs."""
        whole = {} if known.value is None else {max(self._looks, default=0): known.value}
        return whole | {epoch: v for epoch, v in known.values if epoch in self._looks}

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
            intermediate_values={},
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
