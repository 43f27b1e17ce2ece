"""Clients' commands as events: checked against the engine's state before anything happens.

A sealed command can still be wrong, for its client may be of another version than this scheduler.
All of it is checked here, for an event that was once written down is handled again at every start:
one that cannot be handled would keep the scheduler down for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..profiling.errors import UsageError
from ..scheduler.events import Event, StudyCancelled, StudySubmitted, TrialEnqueued
from ..scheduler.state import EngineState
from ..scheduler.strategy import make_strategy
from ..scheduler.study import CONTRACTS, StudySpec
from .codec import spec_from_json
from .space import check_params, parameter, whole
from .submission import DIRECTIONS, SAMPLERS

KINDS = "submit, cancel, enqueue"


def to_event(body: Mapping[str, Any], state: EngineState, at: float) -> Event:
    """The event that a command asks for. UsageError says what is wrong with it."""
    kind = body.get("kind")
    try:
        if kind == "submit":
            return _submitted(body, state, at)
        return _of_study(body, state, at)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"a malformed command of kind {kind!r} is refused: {error!r}") from error


def _submitted(body: Mapping[str, Any], state: EngineState, at: float) -> Event:
    spec = spec_from_json(json.dumps(body.get("study")))
    _check_name(spec, state)
    _check_known(spec)
    enqueued = tuple(check_params(spec.space, each) for each in body.get("enqueued", ()))
    return StudySubmitted(at=at, study=spec, enqueued=enqueued)


def _of_study(body: Mapping[str, Any], state: EngineState, at: float) -> Event:
    kind, study = body.get("kind"), str(body.get("study", ""))
    if study in state.finished:
        raise UsageError(f"study {study} is over already")
    if study not in state.studies:
        raise UsageError(f"there is no study {study}")
    if kind == "cancel":
        return StudyCancelled(at=at, study=study)
    if kind == "enqueue":
        params = check_params(state.studies[study].spec.space, body["params"])
        return TrialEnqueued(at=at, study=study, params=params)
    raise UsageError.refuse("kind", kind, KINDS)


def _check_name(spec: StudySpec, state: EngineState) -> None:
    taken = {study.spec.name: study.spec.id for study in state.studies.values()}
    taken |= {name: study for study, name in state.finished.items()}
    if taken.get(spec.name, spec.id) != spec.id:
        raise UsageError.refuse("study_name", spec.name, "a name not taken by another study")


def _check_known(spec: StudySpec) -> None:
    """See that engine and sampler know all that ``spec`` names."""
    for field, value, known in (
        ("contract", spec.contract, CONTRACTS),
        ("direction", spec.direction, DIRECTIONS),
        ("sampler", spec.sampler, SAMPLERS),
    ):
        if value not in known:
            raise UsageError.refuse(field, value, ", ".join(known))
    whole("n_trials", spec.n_trials, low=1)
    make_strategy(spec)
    for _, text in spec.space or ():
        parameter(text)
