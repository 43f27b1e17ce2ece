"""Clients' commands as events: checked against the engine's state before anything happens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..profiling.errors import UsageError
from ..scheduler.events import Event, StudyCancelled, StudySubmitted, TrialEnqueued
from ..scheduler.state import EngineState
from ..scheduler.study import Params, StudySpec
from .codec import spec_from_json

KINDS = "submit, cancel, enqueue"


def to_event(body: Mapping[str, Any], state: EngineState, at: float) -> Event:
    """The event that a command asks for. UsageError says what is wrong with it."""
    kind = body.get("kind")
    if kind == "submit":
        spec = spec_from_json(json.dumps(body.get("study")))
        _check_name(spec, state)
        enqueued = tuple(_params(each) for each in body.get("enqueued", ()))
        return StudySubmitted(at=at, study=spec, enqueued=enqueued)
    study = str(body.get("study", ""))
    if study in state.finished:
        raise UsageError(f"study {study} is over already")
    if study not in state.studies:
        raise UsageError(f"there is no study {study}")
    if kind == "cancel":
        return StudyCancelled(at=at, study=study)
    if kind == "enqueue":
        return TrialEnqueued(at=at, study=study, params=_params(body.get("params")))
    raise UsageError.refuse("kind", kind, KINDS)


def _params(params: Any) -> Params:
    if not isinstance(params, Mapping):
        raise UsageError.refuse("params", params, "a mapping of parameter names to values")
    return tuple(params.items())


def _check_name(spec: StudySpec, state: EngineState) -> None:
    taken = {study.spec.name: study.spec.id for study in state.studies.values()}
    taken |= {name: study for study, name in state.finished.items()}
    if taken.get(spec.name, spec.id) != spec.id:
        raise UsageError.refuse("study_name", spec.name, "a name not taken by another study")
