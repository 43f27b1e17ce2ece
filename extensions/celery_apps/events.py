"""The decision to send a user's task when a study is over, and the event with the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from ...base.values import Natural, value_class
from ...scheduler.model.decisions import Decision
from ...scheduler.model.events import Event

#: The argument of ``create_study`` that has the task: on success, or if the study failed.
Occasion = Literal["on_end", "on_error"]


@value_class(frozen=True, slots=True, kw_only=True)
class Call(Decision):
    """A decision to send a user's task.

    The decision is open until an event ``Called`` has its id as ``cause``.
    """

    #: The study's id.
    study: str
    occasion: Occasion
    #: The task as JSON, in the form in which the study stores the task (``spec``).
    call: str = field(repr=False)
    #: The figures of the study, which the task gets as an argument (``facts``).
    facts: Mapping[str, Any] = field(hash=False)
    #: True if the task may have been sent before.
    again: bool = False

    @property
    def task_id(self) -> str:
        """The id of the task, the same in each message, so that a repetition is recognised."""
        return str(uuid5(NAMESPACE_URL, f"penstock:{self.study}/{self.id}"))


@value_class(frozen=True, slots=True, kw_only=True)
class Called(Event):
    """An event: a task was sent, or sending the task was given up.

    ``cause`` is the id of the task's ``Call``.
    """

    #: The study's id.
    study: str
    occasion: Occasion
    #: The name of the task, the name of the app, and the id of the task.
    task: str
    app: str
    task_id: str
    #: The reason for which sending was given up; empty if the broker has accepted the task.
    why: str = ""
    #: The number of times that sending was tried.
    tries: Natural = 1


#: The kinds of event, by their names in a ledger.
EVENTS: Mapping[str, type[Event]] = {"celery_apps.Called": Called}
