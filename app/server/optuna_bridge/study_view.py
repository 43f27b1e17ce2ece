"""A study's trials as Optuna's samplers read them, kept up to date from the engine's trials.

By these rules a trial is COMPLETE, PRUNED, FAIL or RUNNING in Optuna's sense:

- Under a strategy with rungs, results of only one rung are shown: the highest rung that enough
  trials have reached (for CMA-ES and NSGA-II, the lowest rung). These trials are COMPLETE with
  their value at that rung, even if they are paused, promoted or stopped. So values after equal
  training are compared, and a sampler learns from them at once.
- Without rungs a completed trial is COMPLETE.
- A trial that needs more memory than any device has, or that exceeded a constraint before it was
  trained, is PRUNED without a result. TPE ranks such a trial behind all others and so avoids its
  surroundings. Any other failed or cancelled trial is FAIL.
- A trial without a result yet is RUNNING, and TPE avoids its surroundings (constant liar).

Optuna's own convention is that a trial is PRUNED at its last rung. TPE then ranks every trial of a
higher rung as better. With promotions, the trials of higher rungs are the few that came first, and
TPE stays near them (docs/history/measured.md).

A trial moves from one rung to another, which no storage of Optuna's allows. So samplers get a
storage that stores only their notes and shows the current state of the engine's trials.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ....scheduler.model.study import Observation, Params, Scalar, StudySpec
from ....scheduler.model.trial import Trial, TrialState
from ....scheduler.strategies.base import comparison_epochs
from ....tasks.objectives.read_side import GivenStudy, ReadSide
from ...spec.conditions import without_inactive

Distributions = Mapping[str, BaseDistribution]

_GONE = (TrialState.FAILED, TrialState.CANCELLED)


def _is_too_large(trial: Trial) -> bool:
    return trial.failure is not None and trial.failure.kind == "memory"


class StudyView:
    """The trials of one study, as samplers see them, with the distributions ``dists``.

    A trial is converted again only if its result has changed.
    """

    def __init__(self, spec: StudySpec, dists: Distributions) -> None:
        self.dists = dists
        self.directions = [StudyDirection[each.direction.upper()] for each in spec.objectives]
        self.shown: list[FrozenTrial] = []
        #: The notes that the sampler has written on trials since the trials were last shown, and
        #: its notes on the study.
        self.noted: dict[int, dict[str, Any]] = {}
        self.noted_of_study: dict[str, Any] = {}
        self._spec = spec
        self._looks = comparison_epochs(spec.strategy)
        self._cache: dict[str, tuple[object, FrozenTrial]] = {}

    def show(
        self,
        trials: Sequence[Trial],
        least: int | None,
        others: Sequence[Observation] = (),
    ) -> None:
        """Show ``trials`` at the highest rung that at least ``least`` of them have reached.

        If ``least`` is None, show the trials at the lowest rung. The results in ``others``
        (observations from earlier studies) count, too. Each observation is shown if it has a value
        at that rung.
        """
        counts = Counter(epoch for trial in trials for epoch in trial.values)
        counts += Counter(epoch for each in others for epoch in self._values(each))
        reached = (epoch for epoch in self._looks if least is not None and counts[epoch] >= least)
        rung = max(reached, default=self._looks[0] if least is None else 0)
        self.shown = []
        self.noted, self.noted_of_study = {}, {}
        for number, each in enumerate(others, start=-len(others)):  # older than all trials
            value = self._values(each).get(rung)
            if value is not None:
                whole = with_assumed(self._spec, each.params)
                params = {name: v for name, v in whole if self._fits(name, v)}
                self.shown.append(self._frozen(number, OptunaState.COMPLETE, (value,), params, {}))
        for trial in trials:
            value = trial.values.get(rung) if self._looks else trial.value
            if trial.state in _GONE:
                state = OptunaState.PRUNED if _is_too_large(trial) else OptunaState.FAIL
                value = None
            elif trial.state is TrialState.STOPPED and trial.value is None and not trial.feasible:
                state = OptunaState.PRUNED
            elif value is None or not (self._looks or trial.state is TrialState.COMPLETED):
                state, value = OptunaState.RUNNING, None
            else:
                state = OptunaState.COMPLETE
            values = None if value is None else (value, *trial.further)
            key = (state, values, trial.params, trial.constraints)
            entry = self._cache.get(trial.id)
            if entry is None or entry[0] != key:
                whole = with_assumed(self._spec, trial.params)
                fitting = {name: v for name, v in whole if self._fits(name, v)}
                entry = (
                    key,
                    self._frozen(trial.number, state, values, fitting, _attributes(trial)),
                )
                self._cache[trial.id] = entry
            self.shown.append(entry[1])

    def running(
        self, number: int, params: Mapping[str, Scalar] | None = None, notes: str = ""
    ) -> FrozenTrial:
        """Return a trial without results, with the parameters that are known so far.

        ``notes`` are the sampler's earlier notes on the trial, as JSON text.
        """
        attributes = json.loads(notes) if notes else {}
        return self._frozen(number, OptunaState.RUNNING, None, params or {}, attributes)

    def notes_of(self, number: int) -> str:
        """Return the sampler's notes on a trial as JSON text, or an empty text without notes."""
        return json.dumps(self.noted[number], sort_keys=True) if number in self.noted else ""

    def study(self) -> optuna.Study:
        """Return the study that samplers see.

        Call this for each draw, because Optuna's study caches.
        """
        # Optuna's Study needs a sampler, which is never used: ours take the study as an argument.
        return optuna.Study("view", _Notes(self), sampler=_UNUSED)

    def _values(self, known: Observation) -> dict[int, float]:
        """Return the values of the observation ``known``, by rung.

        The observation's final value counts as the value at the last rung, or at rung 0 if there
        are no rungs.
        """
        whole = {} if known.value is None else {max(self._looks, default=0): known.value}
        return whole | {epoch: v for epoch, v in known.values if epoch in self._looks}

    def _fits(self, name: str, value: Scalar) -> bool:
        """Return True if the view has the parameter ``name`` and ``value`` lies in its range.

        A trial's value may come from an earlier range, or the user may have chosen the value
        freely.
        """
        if name not in self.dists:
            return False
        dist = self.dists[name]
        try:
            return dist._contains(dist.to_internal_repr(value))
        except ValueError:  # not one of the choices, or not a number
            return False

    def _frozen(
        self,
        number: int,
        state: OptunaState,
        values: Sequence[float] | None,
        params: Mapping[str, Scalar],
        attributes: dict[str, Any],
    ) -> FrozenTrial:
        return FrozenTrial(
            number=number,
            trial_id=number,
            state=state,
            value=None,
            values=values,
            datetime_start=None,
            datetime_complete=None,
            params=dict(params),
            distributions={name: self.dists[name] for name in params},
            user_attrs={},
            system_attrs=attributes,
            intermediate_values={},
        )


def with_assumed(spec: StudySpec, params: Params) -> Params:
    """Return a trial's parameters, with assumed values of parameters that were added later.

    A user who adds a parameter to the space of a study says which value earlier trials are assumed
    to have had. The parameters are in the order of the space.
    """
    if spec.edits is None or not spec.edits.assumed:
        return params
    whole = dict(spec.edits.assumed) | dict(params)
    ordered = {name: whole[name] for name, _ in spec.space or () if name in whole}
    return tuple(without_inactive(ordered, spec.conditions).items())


def _attributes(trial: Trial) -> dict[str, Any]:
    """Return the sampler's notes on a trial, and the trial's constraints in Optuna's form."""
    attributes: dict[str, Any] = json.loads(trial.notes) if trial.notes else {}
    if trial.constraints:
        attributes["constraints"] = [excess for _, excess in trial.constraints]
    return attributes


class _Notes(ReadSide):
    """The storage of a view. Samplers read the view's trials in it and write notes to it."""

    def __init__(self, view: StudyView) -> None:
        self._view = view
        notes = view.noted_of_study
        study = GivenStudy(("view",), view.directions, view.shown, system_attrs=notes)
        super().__init__(lambda: {0: study})

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Store a sampler's note on a trial. CMA-ES and NSGA-II read such notes again."""
        self._view.noted.setdefault(trial_id, {})[key] = value

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Store an attribute that a sampler sets, such as NSGA-II's parents of a generation.

        The attribute is dropped when the sampler is next asked, with a new list of trials.
        """
        self._view.noted_of_study[key] = value


_UNUSED = RandomSampler(seed=0)
