"""Turns users' writes to the Optuna storage into events: trials, results and attributes.

Numbers may be given as texts, since NaN and infinities are no JSON. Attributes are JSON texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic_core import ArgsKwargs

from ....base.errors import UsageError
from ....base.values import Natural
from ....scheduler.engine.engine import Engine
from ....scheduler.model.events import (
    Event,
    StudyClosed,
    StudyDeleted,
    StudyReopened,
    StudyStopped,
    StudyWritten,
    TrialAdded,
    TrialWritten,
)
from ....scheduler.model.finished import FinishedStudy
from ....scheduler.model.study import DELETED, StudyRecord, StudySpec, number_of, trial_id
from ....scheduler.model.trial import FINAL, Trial
from ....scheduler.model.writing import State, Writing
from ....scheduler.state.state import EngineState, StudyState
from ...common.who import LONGEST
from ...extensions import of_ends

#: The kinds of commands that need the study's trials, so that a study that is over is reopened.
_REOPENING = ("add", "write")
#: A function that returns the ledger's record and trials of a study that is over, by its id.
FindPast = Callable[[str], tuple[StudyRecord, FinishedStudy]]
#: A number in a message: NaN and infinities, which JSON lacks, are texts.
Number = Annotated[float, Field(strict=False)]
#: Words in which users say who they are, and why they decide so.
Words = Annotated[str, Field(max_length=LONGEST)]
_WRITING = TypeAdapter(Writing)


@dataclass(frozen=True, slots=True)
class Context:
    """The state that a command is checked against, and the time at which the command came."""

    engine: Engine
    at: float
    past: FindPast

    @property
    def state(self) -> EngineState:
        return self.engine.state

    def at_work(self, study: str) -> StudyState:
        """Return a study that is not over. Raises UsageError if it is over or does not exist."""
        if study in self.state.studies:
            return self.state.studies[study]
        if self.is_over(study):
            raise UsageError(f"study {study} is over already")
        raise UsageError(f"there is no study {study}")

    def trial_at_work(self, study: str, number: int) -> tuple[StudyState, Trial]:
        """Return a study that is not over, and its trial ``number``, or raise UsageError."""
        study_state = self.at_work(study)
        trial = self.state.trials.get(trial_id(study, number))
        if trial is None:
            raise no_trial(study_state.spec.name, number, len(study_state.trials))
        return study_state, trial

    def is_over(self, study: str) -> bool:
        """Return True if ``study`` is over and was not deleted."""
        return self.state.finished.get(study, DELETED) != DELETED


def no_trial(name: str, number: object, trials: int) -> UsageError:
    """Return the error for a trial number that a study with ``trials`` trials does not have."""
    limit = f"its trials are 0 to {trials - 1}" if trials else "it has no trial yet"
    return UsageError(f"{name} has no trial {number}: {limit}")


def reopening(
    body: Mapping[str, Any], state: EngineState, at: float, find: FindPast
) -> StudyReopened | None:
    """Return the event that reopens the study before the command's own event, or None.

    A study whose trials ran here stays over until a command continues a trial; trials that its user
    adds run when the study is extended. A study without code is opened again, so that its user can
    train trials.
    """
    name = str(body.get("study", ""))
    adds = body.get("kind") in _REOPENING
    if not adds and not any(reopens(body) for reopens in of_ends("server", "reopens")):
        return None
    if state.finished.get(name, DELETED) == DELETED:
        return None
    record, past = find(name)
    spec = record.spec
    if adds and not spec.local:
        raise UsageError(f"{spec.name} is over, and takes no trials of its user's")
    for check in () if adds else of_ends("server", "check_past"):
        check(body, record, past)
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
    """Return the event that ends a study that was reopened for a command that was refused."""
    kind = StudyClosed if reopened.study.contract == "ask" else StudyStopped
    return kind(at=reopened.at, study=reopened.study.id)


def must_count(event: Event, state: EngineState) -> bool:
    """Return True if the command of ``event`` fails when the event is refused.

    The exception is a call that an objective repeats: it is answered as before.
    """
    if isinstance(event, TrialAdded) and event.call:
        study = state.studies.get(event.trial.rpartition("-")[0])
        return study is None or event.call not in study.calls
    return isinstance(event, TrialAdded | TrialWritten | StudyWritten | StudyStopped | StudyDeleted)


def answer(event: Event, state: EngineState) -> dict[str, Any]:
    """Return the fields of the reply to the command that became ``event``, apart from ``ok``."""
    if isinstance(event, TrialAdded):
        study = state.studies.get(event.trial.rpartition("-")[0])
        trial = study.calls.get(event.call) if study is not None else None
        return {"number": number_of(trial or event.trial)}
    return {name: value for of in of_ends("server", "answer") for name, value in of(event, state)}


def writing_of(body: Mapping[str, Any]) -> Writing:
    """Return a message's writes. Raises ValueError or TypeError if they are malformed."""
    suggestions = [ArgsKwargs(tuple(each)) for each in body.get("suggestions", ())]
    writing = _WRITING.validate_python({**body, "suggestions": suggestions})
    texts = [each.distribution for each in writing.suggestions]
    for text in [*texts, *(text for _, text in writing.user_attrs + writing.system_attrs)]:
        json.loads(text)
    return writing


def _annotated(context: Context, study: str, writing: dict[str, Any]) -> Event:
    if study not in context.state.studies and not context.is_over(study):
        raise UsageError(f"there is no study {study}")
    attributes = writing_of(writing)
    return StudyWritten(
        at=context.at,
        study=study,
        user_attrs=attributes.user_attrs,
        system_attrs=attributes.system_attrs,
    )


def _stopped(context: Context, study: str) -> Event:
    return StudyStopped(at=context.at, study=context.at_work(study).spec.id)


def _added(
    context: Context,
    *,
    study: str,
    state: State,
    writing: dict[str, Any],
    values: list[Number] = [],  # noqa: B006 - nobody changes it
    started: float | None = None,
    ended: float | None = None,
    call: str = "",
) -> Event:
    study_state = _local(context, study)
    return TrialAdded(
        at=context.at,
        trial=trial_id(study, len(study_state.trials)),
        state=state,
        values=_values(values, study_state.spec),
        writing=writing_of(writing),
        started=started,
        ended=ended,
        call=call,
    )


def _written(
    context: Context,
    *,
    study: str,
    number: Natural,
    writing: dict[str, Any],
    state: State | None = None,
    values: list[Number] = [],  # noqa: B006 - nobody changes it
    reason: str = "",
) -> Event:
    study_state = _local(context, study)
    name = study_state.spec.name
    trial = context.state.trials.get(trial_id(study, number))
    if trial is None:
        raise UsageError(f"{name} has no trial {number}")
    content = writing_of(writing)
    if trial.state in FINAL:
        raise UsageError(f"trial {number} of {name} is {trial.state} already")
    if trial.fence and (state or not content.only_attributes):
        raise UsageError(f"trial {number} of {name} is running on a device")
    if state == "running" and trial.id not in study_state.waiting:
        raise UsageError(f"trial {number} of {name} is not waiting")
    if state not in (None, "running") and trial.id not in study_state.handed_out:
        raise UsageError(f"trial {number} of {name} was not asked for")
    return TrialWritten(
        at=context.at,
        trial=trial.id,
        writing=content,
        state=state or "",
        values=_values(values, study_state.spec),
        reason=reason,
        draws_digest="" if trial.begun else None,  # what an attempt has drawn stands
    )


def _deleted(context: Context, study: str) -> Event:
    study_state = context.state.studies.get(study)
    if study_state is None and not context.is_over(study):
        raise UsageError(f"there is no study {study}")
    record = context.past(study)[0] if study_state is None else study_state.record
    return StudyDeleted(at=context.at, record=replace(record, finished_at=context.at))


def _local(context: Context, study: str) -> StudyState:
    """Return a study that is not over, to which its user may add trials. Raises UsageError."""
    study_state = context.at_work(study)
    if not study_state.spec.local:
        raise UsageError(f"{study_state.spec.name} takes no trials of its user's")
    return study_state


def _values(values: list[float], spec: StudySpec) -> tuple[float, ...]:
    if values and len(values) != len(spec.objectives):
        allowed = f"{len(spec.objectives)} numbers, one for each direction"
        raise UsageError.refuse("values", values, allowed)
    return tuple(values)


#: The functions of the commands that objectives may send, too, by kind (compare
#: ``app.server.runner.commands.COMMANDS``).
COMMANDS: dict[str, Callable[..., Event]] = {
    "add": _added,
    "write": _written,
    "annotate": _annotated,
    "stop": _stopped,
    "delete": _deleted,
}
