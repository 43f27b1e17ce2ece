"""Turns what users write into Optuna's storage into events: trials, results and attributes.

Numbers may be given as texts, since NaN and infinities are no JSON. Attributes are JSON texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...profiling.base.errors import UsageError
from ...scheduler.model.events import (
    Event,
    StudyClosed,
    StudyDeleted,
    StudyReopened,
    StudyStopped,
    StudyWritten,
    TrialAdded,
    TrialWritten,
)
from ...scheduler.model.finished import FinishedStudy
from ...scheduler.model.study import DELETED, StudyRecord, StudySpec, number_of, trial_id
from ...scheduler.model.trial import FINAL
from ...scheduler.model.writing import STATES, Attributes, Suggestion, Writing
from ...scheduler.state.state import EngineState, StudyState
from ..common.validation import whole

#: The kinds of command that this module reads.
KINDS = ("add", "write", "annotate", "stop", "delete")
#: The kinds that need the study's trials, so that a study that is over is reopened for them.
_REOPENING = ("add", "write")
#: What the ledger has of a study that is over: its record and its trials.
FindPast = Callable[[str], tuple[StudyRecord, FinishedStudy]]


def reopening(
    body: Mapping[str, Any], state: EngineState, at: float, find: FindPast
) -> StudyReopened | None:
    """The event that must come before that of the command; None if there is none.

    A study whose objective ran here stays over: what waits in it is run when it is extended. One
    without code is open again, for its user to train.
    """
    name = str(body.get("study", ""))
    if body.get("kind") not in _REOPENING or state.finished.get(name, DELETED) == DELETED:
        return None
    record, past = find(name)
    spec = record.spec
    if not spec.local:
        raise UsageError(f"{spec.name} is over, and takes no trials of its user's")
    if spec.contract == "ask":
        return StudyReopened(at=at, study=spec, past=past)
    return StudyReopened(
        at=at,
        study=spec,
        past=past,
        status=record.status,
        finished_at=record.finished_at,
        message=record.message,
    )


def closing(reopened: StudyReopened) -> Event:
    """The event that ends a study that was reopened for a command that was refused."""
    kind = StudyClosed if reopened.study.contract == "ask" else StudyStopped
    return kind(at=reopened.at, study=reopened.study.id)


def to_event(body: Mapping[str, Any], state: EngineState, at: float, find: FindPast) -> Event:
    """The event that a command of ``KINDS`` asks for. UsageError says what is wrong with it."""
    kind, name = body["kind"], str(body["study"])
    if kind == "delete":
        return _deleted(state, name, at, find)
    if kind == "annotate":
        if name not in state.studies and state.finished.get(name, DELETED) == DELETED:
            raise UsageError(f"there is no study {name}")
        writing = writing_of(body["writing"])
        return StudyWritten(
            at=at, study=name, user_attrs=writing.user_attrs, system_attrs=writing.system_attrs
        )
    study = state.studies.get(name)
    if study is None:
        raise UsageError(f"there is no study {name}, or it is over")
    if kind == "stop":
        return StudyStopped(at=at, study=name)
    if not study.spec.local:
        raise UsageError(f"{study.spec.name} takes no trials of its user's")
    return _added(body, study, at) if kind == "add" else _written(body, state, study, at)


def must_count(event: Event, state: EngineState) -> bool:
    """Whether the command of ``event`` has failed if the event is refused.

    An objective that repeats a call is answered as before.
    """
    if isinstance(event, TrialAdded) and event.call:
        study = state.studies.get(event.trial.rpartition("-")[0])
        return study is None or event.call not in study.calls
    return isinstance(event, TrialAdded | TrialWritten | StudyWritten | StudyStopped | StudyDeleted)


def answer(event: Event, state: EngineState) -> dict[str, Any]:
    """The reply to the command that became ``event``, besides that it was accepted."""
    if isinstance(event, TrialAdded):
        study = state.studies.get(event.trial.rpartition("-")[0])
        known = study.calls.get(event.call) if study is not None else None
        return {"number": number_of(known or event.trial)}
    return {}


def writing_of(body: Mapping[str, Any]) -> Writing:
    """What is written, from its form in messages."""
    return Writing(
        suggestions=tuple(_suggestion(*each) for each in body.get("suggestions", ())),
        steps=tuple((int(step), float(value)) for step, value in body.get("steps", ())),
        user_attrs=_attributes(body.get("user_attrs", ())),
        system_attrs=_attributes(body.get("system_attrs", ())),
    )


def _suggestion(name: str, value: Any, distribution: str, internal: Any) -> Suggestion:
    if not isinstance(value, str | int | float | bool | None):
        raise UsageError.refuse(f"the value of {name!r}", value, "a scalar")
    json.loads(distribution)
    return Suggestion(str(name), value, distribution, float(internal))


def _attributes(given: Any) -> Attributes:
    found = tuple((str(key), str(text)) for key, text in given)
    for _, text in found:
        json.loads(text)
    return found


def _added(body: Mapping[str, Any], study: StudyState, at: float) -> Event:
    return TrialAdded(
        at=at,
        trial=trial_id(study.spec.id, len(study.trials)),
        state=_state(body["state"]),
        values=_values(body.get("values", ()), study.spec),
        writing=writing_of(body["writing"]),
        started=None if body.get("started") is None else float(body["started"]),
        ended=None if body.get("ended") is None else float(body["ended"]),
        call=str(body.get("call", "")),
    )


def _written(body: Mapping[str, Any], state: EngineState, study: StudyState, at: float) -> Event:
    number = whole("trial", body["number"], low=0)
    trial = state.trials.get(trial_id(study.spec.id, number))
    if trial is None:
        raise UsageError(f"{study.spec.name} has no trial {number}")
    moved = _state(body["state"]) if body.get("state") else ""
    writing = writing_of(body["writing"])
    if trial.state in FINAL:
        raise UsageError(f"trial {number} of {study.spec.name} is {trial.state} already")
    if trial.fence and (moved or not writing.only_attributes):
        raise UsageError(f"trial {number} of {study.spec.name} runs on a device")
    if moved == "running" and trial.id not in study.waiting:
        raise UsageError(f"trial {number} of {study.spec.name} does not wait")
    if moved not in ("", "running") and trial.id not in study.handed_out:
        raise UsageError(f"trial {number} of {study.spec.name} was not asked for")
    return TrialWritten(
        at=at,
        trial=trial.id,
        writing=writing,
        state=moved,
        values=_values(body.get("values", ()), study.spec),
        reason=str(body.get("reason", "")),
        draws_digest="" if trial.begun else None,  # what an attempt has drawn stands
    )


def _deleted(state: EngineState, name: str, at: float, find: FindPast) -> Event:
    study = state.studies.get(name)
    if study is None and state.finished.get(name, DELETED) == DELETED:
        raise UsageError(f"there is no study {name}")
    record = find(name)[0] if study is None else study.record
    return StudyDeleted(at=at, record=replace(record, finished_at=at))


def _state(given: Any) -> str:
    if given not in STATES:
        raise UsageError.refuse("state", given, ", ".join(STATES))
    return str(given)


def _values(given: Any, spec: StudySpec) -> tuple[float, ...]:
    values = tuple(float(value) for value in given)
    if values and len(values) != len(spec.objectives):
        allowed = f"{len(spec.objectives)} numbers, one for each direction"
        raise UsageError.refuse("values", list(values), allowed)
    return values
