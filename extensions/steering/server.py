"""Checks users' commands for single trials at the scheduler, and makes events of the commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...app.server.runner.user_commands import Context, Words, no_trial
from ...base.errors import UsageError
from ...base.values import Natural
from ...scheduler.model.events import Event
from ...scheduler.model.finished import FinishedStudy
from ...scheduler.model.study import StudyRecord
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import StudyState
from ...scheduler.strategies.full import FullBudget
from .events import Steered, Verb
from .verbs import REVIVES, refusal


def _steered(
    context: Context,
    *,
    study: str,
    number: Natural,
    verb: Verb,
    to: Natural = 0,
    who: Words = "",
    why: Words = "",
) -> Event:
    study_state, trial = context.trial_at_work(study, number)
    _refuse(study_state, trial, verb, to)
    return Steered(at=context.at, trial=trial.id, verb=verb, to=to, who=who, why=why)


#: The functions that turn a command into an event, by the command's kind. The arguments of a
#: function are the fields of the command.
COMMANDS: Mapping[str, Callable[..., Event]] = {"steer": _steered}


def check_past(body: Mapping[str, Any], record: StudyRecord, past: FinishedStudy) -> None:
    """Check a command for a trial of a finished study, before the command reopens the study.

    ``body`` is the command, and ``past`` is the study as the ledger has it. Commands that reopen no
    study are not checked here. Raises UsageError if the command would be refused after the
    reopening.
    """
    if not reopens(body):
        return
    number, verb, to = body.get("number"), body.get("verb"), body.get("to", 0)
    spec, matches = record.spec, [trial for trial in past.trials if trial.number == number]
    if not isinstance(to, int) or not matches:
        raise no_trial(spec.name, number, len(past.trials))
    nothing = FullBudget(0, 0)
    _refuse(StudyState(spec, nothing, past.created_at), matches[0].record(), verb, to)


def _refuse(study: StudyState, trial: Trial, verb: Any, to: int) -> None:
    if reason := refusal(study, trial, verb, to):
        name = study.spec.name
        raise UsageError(f"{verb} is refused for trial {trial.number} of {name}: {reason}")


def reopens(body: Mapping[str, Any]) -> bool:
    """Return True if the command in ``body`` may continue a trial of a finished study."""
    return body.get("kind") == "steer" and body.get("verb") in REVIVES
