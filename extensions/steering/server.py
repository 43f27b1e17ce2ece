"""Turns users' commands about one trial into events, checked against the engine's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from ...app.runner.user_commands import Context
from ...profiling.base.errors import UsageError
from ...profiling.base.values import Natural
from ...scheduler.model.events import Event
from ...scheduler.model.study import trial_id
from .events import Steered, Verb
from .verbs import REVIVES, refusal

#: Words in which users say who they are, and why they decide so.
Words = Annotated[str, Field(max_length=500)]


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
    known = context.at_work(study)
    trial = context.state.trials.get(trial_id(study, number))
    if trial is None:
        last = len(known.trials) - 1
        limit = f"its trials are 0 to {last}" if known.trials else "it has no trial yet"
        raise UsageError(f"{known.spec.name} has no trial {number}: {limit}")
    if refused := refusal(known, trial, verb, to):
        raise UsageError(f"{verb} is refused for trial {number} of {known.spec.name}: {refused}")
    return Steered(at=context.at, trial=trial.id, verb=verb, to=to, who=who, why=why)


#: Kinds of command, each with the function whose arguments are its fields.
COMMANDS: Mapping[str, Callable[..., Event]] = {"steer": _steered}


def reopens(body: Mapping[str, Any]) -> bool:
    """Tell whether a command has a trial go on of a study that is over."""
    return body.get("kind") == "steer" and body.get("verb") in REVIVES
