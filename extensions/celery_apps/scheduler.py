"""Decides that a task is sent when a study is over: the scheduler's end of the extension.

Theory of operation. The event that ends a study has one decision follow, ``Call``, which is kept in
the extension's state until ``Called`` says that the user's broker has the task, or that it was
given up. So the commit of the end is the record of the intention, and a scheduler that begins asks
again for what has no answer. Whether the one before has sent it nobody can know: it is sent under
the same id, and its headers say so.

A study that goes on after its end ends again, with a task of another id.
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

#: The name of the extension, and of its state: the calls without an answer, by decision.
NAME = "celery_apps"


def plug(parts: Parts) -> Extension:
    """Return the extension that has tasks sent."""
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
    """Notices the end of each study, and keeps what is yet to be sent."""

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
