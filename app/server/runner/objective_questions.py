"""Answer the questions of running objectives.

An objective asks for the value of a parameter, or asks the scheduler to carry out a command. A
question whose fence (attempt number) is not its trial's newest is dropped, because the attempt that
asked has ended and nobody waits for the answer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from ....base.errors import LedgerDamaged, PenstockError, UsageError
from ....scheduler.model.events import Event
from ....scheduler.model.study import StudySpec
from ....scheduler.model.trial import Trial
from ....scheduler.state.state import EngineState
from ...common.ports import Samplers
from . import answers, user_commands
from .broadcast import Broadcast
from .commands import refusal
from .reports import Question, Request

log = logging.getLogger(__name__)

#: The kind of command by which a worker asks for its study's whole history. The worker sends it
#: when the history on the broker is incomplete.
HISTORY = "history"
#: The key of an answer, without the protocol's prefix, and the answer as JSON text.
Reply = tuple[str, str]


class ObjectiveQuestions:
    """The part of the runner that answers questions of running objectives."""

    def __init__(
        self,
        samplers: Samplers,
        ask: Callable[[StudySpec, Question], None],
        apply: Callable[[Event], object],
        carry_out: Callable[[dict[str, Any], float], dict[str, Any]],
        broadcast: Broadcast,
    ) -> None:
        """Create the part of the runner that answers objectives.

        ``ask`` puts a question to a sampler of a user's class, whose answer comes later. ``apply``
        lets the engine handle an event. ``carry_out`` carries out a command at a given time (in
        seconds) and returns the fields of its reply. ``broadcast`` sends a study's history to its
        trainers.
        """
        self._samplers = samplers
        self._ask = ask
        self._apply = apply
        self._carry_out = carry_out
        self._broadcast = broadcast

    def suggest(self, question: Question, state: EngineState, at: float) -> Reply | None:
        """Return the reply with the value of the parameter that ``question`` asks for.

        If the trial already has the parameter, the reply repeats its value. If not, the sampler
        draws a value, and an event records it. Returns None if the question is stale, or if a
        sampler of a user's class answers in a later turn.
        """
        trial = _asking(question, state)
        if trial is None:
            return None
        values, spec = dict(trial.params), state.studies[trial.study].spec
        if question.name in values:
            return question.reply, json.dumps({"value": values[question.name]})
        if spec.hosted:
            self._ask(spec, question)
            return None
        event, reply = answers.suggestion(self._samplers, question, state, at)
        if event is not None:
            self._apply(event)
        return reply

    def request(self, request: Request, state: EngineState, at: float) -> Reply | None:
        """Carry out the command of ``request`` and return the reply. A stale request returns None.

        If the command asks for its study's history, the history is sent before the reply. A refused
        command gets a reply with the error. Raises LedgerDamaged if the ledger is damaged, because
        no refusal can be written then.
        """
        if _asking(request, state) is None:
            return None
        if request.command["kind"] == HISTORY:
            self._broadcast.due.add(request.command["study"])
            return request.reply, json.dumps({"ok": True})
        try:
            if request.command["kind"] not in user_commands.COMMANDS:
                raise UsageError(f"an objective cannot {request.command['kind']}")
            reply = json.dumps({"ok": True} | self._carry_out(request.command, at))
        except LedgerDamaged:
            raise
        except PenstockError as error:
            reply = refusal(type(error).__name__, str(error))
        return request.reply, reply


def _asking(question: Question | Request, state: EngineState) -> Trial | None:
    """Return the trial that asks, or None if the asking attempt is not the trial's newest."""
    trial = state.trials.get(question.trial)
    if trial is not None and trial.fence == question.fence:
        return trial
    log.info("a question of %s under an old fence was dropped", question.trial)
    return None
