"""Checks users' edits of studies at the scheduler, and makes events of the edits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ...app.extensions import of_ends
from ...app.server.runner.user_commands import Context, Words
from ...base.errors import UsageError
from ...scheduler.model.events import Event
from ...scheduler.model.study import OVER, Scalar, deadline_of
from ...scheduler.state.state import EngineState
from .changes import edited
from .events import Edited


def _edited(
    context: Context,
    *,
    study: str,
    space: dict[str, str | dict[str, Any]] = {},  # noqa: B006 - nobody changes it
    assumed: dict[str, Scalar] = {},  # noqa: B006 - nobody changes it
    settings: dict[str, Any] = {},  # noqa: B006 - nobody changes it
    who: Words = "",
    why: Words = "",
) -> Event:
    if context.is_over(study):
        name = context.past(study)[0].spec.name
        raise UsageError(f"{name} is over: extend it first, as penstock extend {name} --by 10")
    study_state = context.at_work(study)
    if study_state.status in OVER:
        raise UsageError(f"{study_state.spec.name} is over but for single trials: extend it first")
    if study_state.ending:
        raise UsageError(
            f"{study_state.spec.name} has reached a limit, and ends: extend it after that"
        )
    spec, changes = edited(study_state.spec, space, assumed, settings)
    end = deadline_of(spec, study_state.created_at)
    if "deadline" in settings and end is not None and end <= context.at:
        moment = datetime.fromtimestamp(end, UTC).isoformat()
        raise UsageError.refuse("deadline", moment, "a point in time that is yet to come")
    for check in of_ends("spec", "check_submitted") if settings else ():
        check(replace(spec, deadline=None), context.state, context.at)
    return Edited(at=context.at, study=study, spec=spec, changes=changes, who=who, why=why)


#: The functions that turn a command into an event, by the command's kind. The arguments of a
#: function are the fields of the command.
COMMANDS: Mapping[str, Callable[..., Event]] = {"edit": _edited}


def answer(event: Event, state: EngineState) -> Iterator[tuple[str, Any]]:
    """Yield the fields that the scheduler adds to its reply to an edit: the changes in words."""
    if isinstance(event, Edited):
        yield "changes", [list(each) for each in event.changes]
