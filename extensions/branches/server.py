"""Checks users' commands for branches against the engine's state, and turns them into events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...app.server.runner.user_commands import Context, Words, no_trial
from ...base.values import Natural
from ...scheduler.model.events import Event
from ...scheduler.model.finished import FinishedStudy
from ...scheduler.model.study import (
    Scalar,
    StudyRecord,
    number_of,
    study_of_trial,
)
from ...scheduler.state.state import EngineState, StudyState
from ...scheduler.strategies.full import FullBudget
from .checks import last_epoch
from .events import Branched
from .values import check, check_differs, values_of


def _branched(
    context: Context,
    *,
    study: str,
    number: Natural,
    epoch: Natural,
    params: dict[str, Scalar],
    to: Natural = 0,
    copies: Natural = 1,
    outside: bool = False,
    who: Words = "",
    why: Words = "",
) -> Event:
    study_state, trial = context.trial_at_work(study, number)
    to = to or last_epoch(study_state)
    check(study_state, trial, epoch, to, copies)
    values = values_of(study_state.spec, trial.params, params, outside=outside)
    check_differs(values, number, copies)
    return Branched(
        at=context.at,
        trial=trial.id,
        epoch=epoch,
        to=to,
        params=values.params,
        changed=values.changed,
        copies=copies,
        outside=values.outside,
        who=who,
        why=why,
    )


#: The function that turns each kind of command into an event. Its arguments are the command's
#: fields.
COMMANDS: Mapping[str, Callable[..., Event]] = {"branch": _branched}


def answer(event: Event, state: EngineState) -> Iterator[tuple[str, Any]]:
    """Yield the fields to add to a command's reply: the numbers of the new trials."""
    study = state.studies.get(study_of_trial(event.trial)) if isinstance(event, Branched) else None
    if isinstance(event, Branched) and study is not None:
        yield "numbers", [number_of(name) for name in study.trials[-event.copies :]]


def reopens(body: Mapping[str, Any]) -> bool:
    """Return True if a command may be for a study that has ended, which is then reopened."""
    return body.get("kind") == "branch"


def check_past(body: Mapping[str, Any], record: StudyRecord, past: FinishedStudy) -> None:
    """Check a command for a study that has ended, before the study is reopened for the command.

    Raises UsageError as the command itself would. The types of the fields are checked later, with
    the command.
    """
    if not reopens(body):
        return
    number, epoch, to, copies = (
        body.get(name, default)
        for name, default in (("number", -1), ("epoch", 0), ("to", 0), ("copies", 1))
    )
    spec, matches = record.spec, [trial for trial in past.trials if trial.number == number]
    if not matches or not all(isinstance(each, int) for each in (epoch, to, copies)):
        raise no_trial(spec.name, number, len(past.trials))
    study = StudyState(spec, FullBudget(0, 0), past.created_at)
    check(study, matches[0].record(), epoch, to or last_epoch(study), copies)
    params = body.get("params")
    if isinstance(params, dict):
        values_of(spec, matches[0].params, params, outside=bool(body.get("outside")))
