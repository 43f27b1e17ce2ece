"""Decides in the scheduler to send a user's task when a study is over.

Theory of operation. The event that ends a study leads to one decision, ``Call``. The decision is
kept in the extension's state until ``Called`` says that the user's broker has the task, or that
sending was given up. So the commit of the study's end also records that the task must be sent, and
a scheduler that starts repeats every call without an outcome. Nobody can know if the previous
scheduler has sent the task. So the task is sent again with the same id, and the headers of its
message say that the task is a repetition.

If a study goes on after its end, its next end sends a task with another id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...scheduler.engine.engine import Parts
from ...scheduler.model.study import StudySpec
from ...scheduler.outlook.ending import ended_before
from ...scheduler.state.extensions import Extension
from ...scheduler.state.state import StudyState
from .events import Call, Called, Occasion
from .facts import of_state

#: The name of the extension, and the key of its state, which has the calls without an outcome by
#: the id of their decision.
NAME = "celery_apps"


def plug(parts: Parts) -> Extension:
    """Return the extension that decides to send users' tasks when studies end."""
    caller = _Caller(parts)
    return Extension(
        name=NAME,
        needed_by=_calls,
        handlers={Called: caller.on_called},
        on_over=caller.on_over,
        questions=caller.questions,
    )


def _calls(spec: StudySpec) -> bool:
    return bool(spec.on_end or spec.on_error)


class _Caller:
    """The handlers of the extension, which keep the calls that have no outcome yet."""

    def __init__(self, parts: Parts) -> None:
        self._core = parts.core
        self._state = parts.core.state

    def on_over(self, study: StudyState) -> None:
        if ended_before(study, self._core.event, self._core.at):
            return
        occasion: Occasion = "on_error" if study.status == "failed" else "on_end"
        call = study.spec.on_error if study.status == "failed" else study.spec.on_end
        if not call:
            return
        trials = self._core.trials_of(study)
        body: dict[str, Any] = {
            "study": study.spec.id,
            "occasion": occasion,
            "call": call,
            "facts": of_state(study, trials, self._core.at),
        }
        name = self._core.decision_id()
        self._state.ext.setdefault(NAME, {})[name] = body
        self._core.out.append(Call(id=name, cause=self._state.seq, **body))

    def on_called(self, event: Called) -> None:
        pending = self._state.ext.get(NAME, {})
        pending.pop(event.cause, None)
        if not pending:
            self._state.ext.pop(NAME, None)

    def questions(self) -> Iterator[Call]:
        for name, body in self._state.ext.get(NAME, {}).items():
            yield Call(id=name, cause=int(name.partition(".")[0]), again=True, **body)
