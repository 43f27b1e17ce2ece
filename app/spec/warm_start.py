"""Results from other studies, from which the sampler of a new study learns.

The results are not trials of the new study, but part of its definition
(``StudySpec.observations``). So the results are visible wherever the study is: to samplers, to
other processes, in exports, and after the study is extended. The strategy and the number of trials
of the study do not count them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ...scheduler.model.study import Condition, Observation, StudySpec
from ..common.validation import finite
from .conditions import is_active
from .space import Space, check_params

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def observation(params: Any, value: Any, source: Any) -> Observation:
    """Return an observation made from the arguments of ``add_trial``.

    The parameters are checked as far as possible without the space. Raises UsageError if an
    argument is not allowed.
    """
    value = finite("value", value)
    if not isinstance(source, str) or not source:
        raise UsageError.refuse("source", source, "a text that says where it comes from")
    return Observation(check_params(None, params), value, source=source)


def of_frozen(trials: Iterable[FrozenTrial], source: str) -> list[Observation]:
    """Return the results of Optuna's frozen trials as observations.

    Only trials in the states ``COMPLETE`` and ``PRUNED`` have results. A pruned trial counts only
    with its intermediate values, which are compared at equal epochs. Steps that begin at 0, as many
    objectives report them, become epochs that begin at 1. Raises UsageError if a complete trial
    does not have exactly one value.
    """
    observations = []
    for trial in trials:
        if trial.state.name not in ("COMPLETE", "PRUNED"):
            continue
        complete = trial.state.name == "COMPLETE"
        if complete and len(trial.values or ()) != 1:
            raise UsageError(f"trial {trial.number} of {source} has several values: one is needed")
        shift = 0 in trial.intermediate_values
        values = tuple(
            (step + shift, float(value))
            for step, value in sorted(trial.intermediate_values.items())
            if math.isfinite(value)
        )
        value = trial.value if complete else None
        observations.append(Observation(tuple(trial.params.items()), value, values, source))
    return observations


def of_study(study: Any, direction: str) -> list[Observation]:
    """Return the results of a Penstock study or an Optuna study as observations.

    Raises UsageError if the study has several objectives, or if the study's direction is not
    ``direction``.
    """
    if len(study.directions) > 1:
        raise UsageError(
            f"warm_start: {study.study_name} has several objectives, so it has no single value"
        )
    their_direction = (
        study.direction if isinstance(study.direction, str) else study.direction.name.lower()
    )
    if their_direction != direction:
        raise UsageError(
            f"warm_start: {study.study_name} has its best values with {their_direction}, this study"
            f" {direction}s: what is good there is bad here"
        )
    return of_frozen(study.get_trials(), study.study_name)


def fitting(
    given: Sequence[Observation], space: Space | None, conditions: Sequence[Condition] = ()
) -> tuple[Observation, ...]:
    """Return the observations whose parameters fit the space.

    If some observations do not fit, warn with the number of observations left out.
    """
    fitted = []
    for each in given:
        try:
            params = check_params(space, dict(each.params), conditions)
        except UsageError:
            continue
        names = dict(params)
        active = [name for name, _ in space or () if is_active(name, conditions, names)]
        if space is None or names.keys() == set(active):
            fitted.append(Observation(params, each.value, each.values, each.source))
    if len(fitted) < len(given):
        warnings.warn(
            f"{len(given) - len(fitted)} of {len(given)} copied trials do not fit this study's"
            " space and are left out",
            stacklevel=2,
        )
    return tuple(fitted)


def shown(spec: StudySpec, dists: Mapping[str, Any]) -> list[FrozenTrial]:
    """Return the observations as Optuna's frozen trials, for display.

    ``user_attrs["source"]`` of such a trial says where the observation comes from. ``dists`` has
    Optuna's distributions by the name of the parameter.
    """
    from optuna.trial import FrozenTrial, TrialState

    return [
        FrozenTrial(
            number=number,
            trial_id=number,
            state=TrialState.PRUNED if each.value is None else TrialState.COMPLETE,
            value=each.value,
            datetime_start=None,
            datetime_complete=None,
            params=dict(each.params),
            distributions={name: dists[name] for name, _ in each.params if name in dists},
            user_attrs={"source": each.source},
            system_attrs={},
            intermediate_values=dict(each.values),
        )
        for number, each in enumerate(spec.observations)
    ]
