"""Turn users' writes to the Optuna storage into events: trials, results and attributes.

A message may give a number as a text, because JSON has neither NaN nor infinities. Attributes are
JSON texts.
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

#: The kinds of commands that change the study's trials. If the study is over, the study is reopened
#: for such a command.
_REOPENING = ("add", "write")
#: A function that takes the id of a study that is over, and returns its record and its trials.
FindPast = Callable[[str], tuple[StudyRecord, FinishedStudy]]
#: A number in a message. NaN and infinities, which JSON lacks, are given as texts.
Number = Annotated[float, Field(strict=False)]
#: A text in which a user says who they are, or why they make a decision.
Words = Annotated[str, Field(max_length=LONGEST)]
_WRITING = TypeAdapter(Writing)


@dataclass(frozen=True, slots=True)
class Context:
    """The engine and the time at which a command came, for the function that reads the command.

    ``past`` reads a study that is over from the ledger.
    """

    engine: Engine
    at: float
    past: FindPast

    @property
    def state(self) -> EngineState:
        return self.engine.state

    def at_work(self, study: str) -> StudyState:
        """Return the study with the id ``study``.

        Raises UsageError if the study is over or does not exist.
        """
        if study in self.state.studies:
            return self.state.studies[study]
        if self.is_over(study):
            raise UsageError(f"study {study} is over already")
        raise UsageError(f"there is no study {study}")

    def trial_at_work(self, study: str, number: int) -> tuple[StudyState, Trial]:
        """Return the study with the id ``study`` and its trial ``number``.

        Raises UsageError if the study is over, or if the study or the trial does not exist.
        """
        study_state = self.at_work(study)
        trial = self.state.trials.get(trial_id(study, number))
        if trial is None:
            raise no_trial(study_state.spec.name, number, len(study_state.trials))
        return study_state, trial

    def is_over(self, study: str) -> bool:
        """Return True if ``study`` is over and was not deleted."""
        return self.state.finished.get(study, DELETED) != DELETED


def no_trial(name: str, number: object, trials: int) -> UsageError:
    """Return the error for a trial number that does not exist in a study.

    ``name`` is the study's name, and ``trials`` is the number of its trials.
    """
    limit = f"its trials are 0 to {trials - 1}" if trials else "it has no trial yet"
    return UsageError(f"{name} has no trial {number}: {limit}")


def reopening(
    body: Mapping[str, Any], state: EngineState, at: float, find: FindPast
) -> StudyReopened | None:
    """Return the event that reopens a finished study before the command's own event is applied.

    Returns None if the command does not need its study reopened, or if the study is not over.

    A study without code is opened for good, so that its user can train more trials. Any other study
    keeps its finished status while it is reopened. Such a study starts to run again only if a
    command continues one of its trials, or if its user extends the study.

    Raises UsageError if the study cannot take trials from its user, or if an extension refuses.
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
    """Return the event that ends a study again after its command was refused.

    ``reopened`` is the event that reopened the study for the command.
    """
    kind = StudyClosed if reopened.study.contract == "ask" else StudyStopped
    return kind(at=reopened.at, study=reopened.study.id)


def must_count(event: Event, state: EngineState) -> bool:
    """Return True if a command must fail when the engine refuses its ``event``.

    The exception is a call that an objective repeats: the reply of the first call is sent again.
    """
    if isinstance(event, TrialAdded) and event.call:
        study = state.studies.get(event.trial.rpartition("-")[0])
        return study is None or event.call not in study.calls
    return isinstance(event, TrialAdded | TrialWritten | StudyWritten | StudyStopped | StudyDeleted)


def answer(event: Event, state: EngineState) -> dict[str, Any]:
    """Return the fields of the reply to a command, except for the field ``ok``.

    ``event`` is the event that the command became, and ``state`` is the engine's state after the
    event.
    """
    if isinstance(event, TrialAdded):
        study = state.studies.get(event.trial.rpartition("-")[0])
        trial = study.calls.get(event.call) if study is not None else None
        return {"number": number_of(trial or event.trial)}
    return {name: value for of in of_ends("server", "answer") for name, value in of(event, state)}


def writing_of(body: Mapping[str, Any]) -> Writing:
    """Return the writes in a message: attributes, suggested parameters and intermediate values.

    Raises ValueError or TypeError if a write is malformed.
    """
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
        draws_digest="" if trial.begun else None,  # parameters drawn by an attempt must not change
    )


def _deleted(context: Context, study: str) -> Event:
    study_state = context.state.studies.get(study)
    if study_state is None and not context.is_over(study):
        raise UsageError(f"there is no study {study}")
    record = context.past(study)[0] if study_state is None else study_state.record
    return StudyDeleted(at=context.at, record=replace(record, finished_at=context.at))


def _local(context: Context, study: str) -> StudyState:
    """Return the study with the id ``study``, to which its user may add trials.

    Raises UsageError if the study is over, does not exist, or is not local (a local study's sampler
    runs in the trainer or with the user).
    """
    study_state = context.at_work(study)
    if not study_state.spec.local:
        raise UsageError(f"{study_state.spec.name} takes no trials of its user's")
    return study_state


def _values(values: list[float], spec: StudySpec) -> tuple[float, ...]:
    if values and len(values) != len(spec.objectives):
        allowed = f"{len(spec.objectives)} numbers, one for each direction"
        raise UsageError.refuse("values", values, allowed)
    return tuple(values)


#: The functions that read commands which objectives may send, too, by kind. All commands are in
#: ``app.server.runner.commands.COMMANDS``.
COMMANDS: dict[str, Callable[..., Event]] = {
    "add": _added,
    "write": _written,
    "annotate": _annotated,
    "stop": _stopped,
    "delete": _deleted,
}
