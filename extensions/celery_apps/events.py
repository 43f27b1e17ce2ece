"""The decision to send a task when a study is over, and the event that records the outcome."""

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
    """Send a user's task. The call stays open until a ``Called`` names its id as ``cause``."""

    #: The study's id.
    study: str
    occasion: Occasion
    #: The task in JSON, as the study stores it (``spec``).
    call: str = field(repr=False)
    #: The study's figures that the task receives (``facts``).
    facts: Mapping[str, Any] = field(hash=False)
    #: True if the task may have been sent before.
    again: bool = False

    @property
    def task_id(self) -> str:
        """The id of the task, the same in each message, so that a repetition is recognised."""
        return str(uuid5(NAMESPACE_URL, f"penstock:{self.study}/{self.id}"))


@value_class(frozen=True, slots=True, kw_only=True)
class Called(Event):
    """A task was sent, or sending it was given up. ``cause`` is the id of its ``Call``."""

    #: The study's id.
    study: str
    occasion: Occasion
    #: The name of the task, the name of the app, and the id of the task.
    task: str
    app: str
    task_id: str
    #: The reason for giving up; empty if the broker has the task.
    why: str = ""
    #: The number of tries.
    tries: Natural = 1


#: The kinds of event, by their names in a ledger.
EVENTS: Mapping[str, type[Event]] = {"celery_apps.Called": Called}
