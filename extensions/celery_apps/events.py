"""The decision that a task is sent when a study is over, and the event of what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from ...base.values import Natural, value_class
from ...scheduler.model.decisions import Decision
from ...scheduler.model.events import Event

#: The argument of ``create_study`` that names a task.
Occasion = Literal["on_end", "on_error"]


@value_class(frozen=True, slots=True, kw_only=True)
class Call(Decision):
    """Send a task of the user's. It is a question until a ``Called`` with its id answers it."""

    #: The study's id.
    study: str
    occasion: Occasion
    #: The task, as the study has it (``spec``).
    call: str = field(repr=False)
    #: The figures of the study that the task is told (``facts``).
    facts: Mapping[str, Any] = field(hash=False)
    #: True if nobody knows whether it was sent already.
    again: bool = False

    @property
    def task_id(self) -> str:
        """The id of the task, the same in each message, so that a second one is known by it."""
        return str(uuid5(NAMESPACE_URL, f"penstock:{self.study}/{self.id}"))


@value_class(frozen=True, slots=True, kw_only=True)
class Called(Event):
    """A task was sent, or was given up. ``cause`` is the id of its ``Call``."""

    #: The study's id.
    study: str
    occasion: Occasion
    #: The names of the task and of the app, and the task's id.
    task: str
    app: str
    task_id: str
    #: The reason why it was given up; empty if the broker has it.
    why: str = ""
    #: The number of tries.
    tries: Natural = 1


#: The kinds of event, by their names in a ledger.
EVENTS: Mapping[str, type[Event]] = {"celery_apps.Called": Called}
