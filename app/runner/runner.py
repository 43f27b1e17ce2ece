"""The one loop: receive, decide, write down, act.

Theory of operation. A turn takes what has arrived, turns it into events, and lets the engine handle
each. The turn's events and all that they changed go into the ledger in one transaction (a group
commit: under load many events share one sync). Only then are the decisions carried out and the
messages acknowledged, in one round trip.

A crash before the commit loses nothing, because the messages were not acknowledged and are read
again. A crash after it loses decisions, which the reaper notices as attempts that were never
published. Refused events (late, repeated) are not written.

The same loop runs live and simulated: transport, ledger, sampler host and clock are arguments.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...profiling.base.errors import (
    BackendError,
    IllegalTransition,
    LedgerDamaged,
    PenstockError,
    UsageError,
)
from ...profiling.similarity.history import HistoryEntry
from ...scheduler.engine.engine import Engine, Refused
from ...scheduler.model.decisions import (
    Ask,
    AskConfigs,
    AskPlan,
    Consult,
    Cut,
    Decision,
    Discard,
    Dispatch,
    Finish,
    Release,
    Remember,
    Revoke,
)
from ...scheduler.model.events import Event, LedgerRestored, Suggested, Tick, TrialEnqueued
from ...scheduler.model.trial import Trial
from ...scheduler.outlook.outlook import outlook
from ...tasks.process.messages import Forged
from ..broker.protocol import reply_name
from ..common.clock import Clock
from ..common.ports import Message, OpenAttempt, Orders, Policies, Samplers, Transport
from ..ledger.codec import state_to_json
from ..ledger.history import entries_from_bodies, entries_of
from ..ledger.ledger import Ledger
from ..ledger.writes import Batch
from . import answers, commands
from .advisor import Advisor
from .policy_host import PluginHost
from .reaper import Reaper
from .reports import Question, to_event, to_question

log = logging.getLogger(__name__)

#: Seconds between two surveys of devices and leases.
SURVEY_EVERY = 0.25
#: Events between two snapshots of the engine's state.
SNAPSHOT_EVERY = 2000
#: Seconds after an outage of the broker in which silent devices and leases prove nothing.
BLIND_AFTER_OUTAGE = 2.0


def _refusal(kind: str, why: str) -> str:
    return json.dumps({"ok": False, "error": why, "type": kind})


def _failed(message: Message, error: Exception) -> list[tuple[str, str]]:
    """The reply to the client of a command on which the scheduler failed."""
    if message.stream != "commands":
        return []
    why = f"the scheduler failed over this command, which is a bug of Penstock: {error!r}"
    return [(reply_name(commands.id_of(message.body)), _refusal("BackendError", why))]


@dataclass(slots=True)
class _Turn:
    """What one turn of the loop collects between receiving and acting."""

    #: Accepted events with their sequence numbers.
    events: list[tuple[int, Event]] = field(default_factory=list)
    #: What the transport is to carry out.
    orders: Orders = field(default_factory=Orders)
    #: URIs of checkpoints to delete.
    discards: list[str] = field(default_factory=list)
    #: (command id, JSON text) of the commands that were carried out or refused.
    replies: list[tuple[str, str]] = field(default_factory=list)
    #: New entries of the history of tuned system parameters.
    history: list[HistoryEntry] = field(default_factory=list)
    #: Questions to the history.
    consults: list[Consult] = field(default_factory=list)


class Runner:
    """Engine, ledger, transport and samplers, driven by ``turn``."""

    def __init__(  # noqa: PLR0917 - each of the five is another thing, and none has a default
        self,
        engine: Engine,
        ledger: Ledger,
        transport: Transport,
        samplers: Samplers,
        clock: Clock,
        claim_timeout: float = 6.0,
        survey_every: float = SURVEY_EVERY,
        discard: Callable[[Sequence[str]], None] = lambda uris: None,
        policies: Policies | None = None,
    ) -> None:
        """``discard`` deletes checkpoints by their URIs, soon and in the background."""
        self.engine = engine
        #: The ledger failed. The engine may be ahead of it, and must be rebuilt from it.
        self.broken = False
        self._ledger = ledger
        self._transport = transport
        self._samplers = samplers
        self._policies = policies or PluginHost()
        self._advisor = Advisor()
        self._clock = clock
        self._reaper = Reaper(claim_timeout)
        self._survey_every = survey_every
        self._discard = discard
        self._next_survey = 0.0
        self._blind_until = 0.0
        self._snapshot_due = engine.state.seq + SNAPSHOT_EVERY
        self._turn = _Turn()

    def restored(self) -> None:
        """Call before ``start`` if the ledger is a restored older one. Errors as ``turn``."""
        self._transport.open()
        now = self._clock.now()
        self._apply(LedgerRestored(at=now))
        self._write(())  # before anything is sent out, since it releases trials
        self._apply(Tick(at=now))
        self._plan()
        self._write(())

    def start(self, *events: Event) -> None:
        """Open the transport, apply ``events``, and repeat the questions that were not answered."""
        self._transport.open()
        for event in events:
            self._apply(event)
        for ask in self.engine.outstanding():
            self._ask(ask)
        for decision in self.engine.config_asks():
            self._keep(decision)
        self._turn.consults += self.engine.consults()
        self._plan()
        self._write(())

    def turn(self, timeout: float) -> int:
        """One turn of the loop, waiting at most ``timeout`` seconds.

        Returns the number of events that counted (were not refused).

        Raises BackendError if the broker or the ledger does not answer; ``broken`` then says
        whether it was the ledger. If it was the broker, ``turn`` may be called again.
        """
        messages = self._transport.receive(min(timeout, self._until_wake()))
        now = self._clock.now()
        for message in messages:
            self._take(message, now)
        self._timed(now)
        self._plan()
        return self._write(messages)

    def outage(self) -> None:
        """Call after an outage of the broker. What it says of leases is ignored for a while."""
        self._blind_until = self._clock.now() + BLIND_AFTER_OUTAGE
        self._transport.open()

    def snapshot(self) -> None:
        """Write the engine's state now, so that the next start replays nothing."""
        state = self.engine.state
        self._ledger.commit(Batch(snapshot=(state.seq, state_to_json(state))))

    # -- receiving -------------------------------------------------------------------------------

    def _take(self, message: Message, now: float) -> None:
        try:
            if message.stream == "commands":
                self._command(message.body, now)
            elif message.body.get("kind") == "suggest":
                self._suggest(message.body, now)
            else:
                self._apply(to_event(message.body, now))
        except UsageError as error:
            why = error if isinstance(error, Forged) else Forged("form", str(error))
            self._transport.drop(message, why)
        except PenstockError:
            raise
        except Exception as error:
            # The message has the right form, and handling it failed. If it were read again at every
            # start, the scheduler could never run; and the engine may have handled half of it.
            log.exception("entry %s of %s cannot be handled", message.id, message.stream)
            self.broken = True
            self._transport.drop(message, Forged("handling", repr(error)))
            orders = Orders(acks=[message], answers=_failed(message, error))
            self._transport.carry_out(orders)
            raise BackendError(f"entry {message.id} of {message.stream} was dropped") from error

    def _command(self, body: dict[str, Any], now: float) -> None:
        """Carry out a client's command once. A repeated command gets the same reply again."""
        name = commands.id_of(body)
        if body.get("kind") == "plan":  # a question: nothing of it is kept
            plan = outlook(self.engine, now)
            self._turn.orders.answers.append(
                (reply_name(name), json.dumps({"ok": True, "plan": plan}))
            )
            return
        reply = dict(self._turn.replies).get(name) or self._reply_to(name)
        if reply is None:
            if body.get("kind") == "extend":
                self._write(())  # the ledger is asked for studies that are over
            try:
                reply = json.dumps({"ok": True} | self._carry_out(body, now))
            except LedgerDamaged:
                raise  # the refusal cannot be written to it either
            except PenstockError as error:
                reply = _refusal(type(error).__name__, str(error))
            self._turn.replies.append((name, reply))
        self._turn.orders.answers.append((reply_name(name), reply))

    def _carry_out(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Do what a command asks for. Returns the reply to its client."""
        if body.get("kind") == "remember":  # the ledger keeps it, not the engine
            self._turn.history += entries_from_bodies(body.get("entries"))
            return {}
        event = commands.to_event(body, self.engine.state, now, self._ledger.past)
        if not self._apply(event) and isinstance(event, TrialEnqueued):
            raise UsageError(
                f"all trials of study {event.study} have begun: extend it, then enqueue"
            )
        return commands.answer(event, self.engine.state)

    def _reply_to(self, command: str) -> str | None:
        self.broken = True
        reply = self._ledger.reply_to(command)
        self.broken = False
        return reply

    def _suggest(self, body: dict[str, Any], now: float) -> None:
        """One parameter of a running objective: known already, or drawn now and recorded."""
        question = to_question(body)
        trial = self.engine.state.trials.get(question.trial)
        if trial is None or trial.fence != question.fence:
            log.info("a suggestion for %s under an old fence was dropped", question.trial)
            return
        known = dict(trial.params)
        if question.name in known:
            answer = {"value": known[question.name]}
        else:
            answer = self._draw(trial, question, now)
        self._turn.orders.answers.append((question.reply, json.dumps(answer)))

    def _draw(self, trial: Trial, question: Question, now: float) -> dict[str, Any]:
        study, name, text = trial.study, question.name, question.distribution
        spec = self.engine.state.studies[study].spec
        try:
            value = self._samplers.suggest(
                spec, trial, name, text, answers.trials_of(self.engine.state, study)
            )
        except Exception as error:  # anything Optuna may raise for an impossible range
            # The objective's author is responsible for what it asks: the trial fails, and the loop
            # goes on.
            log.warning("no value for %s of %s: %r", name, trial.id, error)
            return {"error": str(error)}
        event = Suggested(at=now, trial=trial.id, name=name, value=value, distribution=text)
        self._apply(event)
        return {"value": value}

    def _until_wake(self) -> float:
        wake = self.engine.wake_at()
        due = self._next_survey if wake is None else min(wake, self._next_survey)
        return max(0.0, due - self._clock.now())

    def _timed(self, now: float) -> None:
        """Events that time brings: expired leases, devices that came or went, a due plan."""
        if now >= self._next_survey:
            self._next_survey = now + self._survey_every
            self._look(now)
        for event in answers.advice(self._advisor, now):
            self._apply(event)
        wake = self.engine.wake_at()
        if wake is not None and now >= wake:
            self._apply(Tick(at=now))

    def _look(self, now: float) -> None:
        state = self.engine.state
        attempts = [
            OpenAttempt(a.segment.trial, fence, len(a.segment.members))
            for fence, a in state.attempts.items()
        ]
        survey = self._transport.survey(attempts)
        if survey.boot is None:
            log.warning("the broker has lost its data: dispatching everything open again")
            self._transport.open()
        blind = now < self._blind_until
        for event in list(self._reaper.findings(survey, state, now, blind=blind)):
            self._apply(event)

    # -- deciding --------------------------------------------------------------------------------

    def _apply(self, event: Event) -> bool:
        """Let the engine handle one event, and keep its decisions. False if it is refused."""
        try:
            decisions = self.engine.handle(event)
        except Refused as reason:
            log.debug("%s refused: %s", type(event).__name__, reason)
            return False
        except IllegalTransition:
            log.exception("a bug of Penstock: %s was dropped", event)
            return False
        self._turn.events.append((self.engine.state.seq, event))
        for decision in decisions:
            self._keep(decision)
        return True

    def _keep(self, decision: Decision) -> None:
        turn = self._turn
        if isinstance(decision, Dispatch):
            turn.orders.dispatches.append(
                (decision, self.engine.state.studies[decision.study].spec)
            )
        elif isinstance(decision, Ask):
            self._ask(decision)
        elif isinstance(decision, AskConfigs):
            self._apply(answers.configs(decision, self._clock.now()))
        elif isinstance(decision, Cut):
            turn.orders.cuts.append(decision)
        elif isinstance(decision, Revoke):
            turn.orders.revokes.append(decision)
        elif isinstance(decision, Release):
            turn.orders.releases.append(decision)
        elif isinstance(decision, Discard):
            turn.discards.extend(decision.uris)
        elif isinstance(decision, Consult):
            turn.consults.append(decision)
        elif isinstance(decision, Remember):
            turn.history += entries_of(decision, self._clock.now())
        elif isinstance(decision, Finish):
            self._samplers.forget(decision.study)
        elif not isinstance(decision, AskPlan):  # ``_plan`` answers that one, from the state
            raise TypeError(f"nothing carries out {decision}")

    def _ask(self, ask: Ask) -> None:
        answer = answers.proposal(self._samplers, ask, self.engine.state, self._clock.now())
        if answer is not None:
            self._apply(answer)

    def _plan(self) -> None:
        """Answer the engine's questions to users' policies, until it asks no more."""
        while (ask := self.engine.state.plan_asked) is not None:
            if not self._apply(answers.plans(self._policies, ask, self._clock.now())):
                return

    # -- writing down and acting -----------------------------------------------------------------

    def _write(self, messages: Sequence[Message]) -> int:
        turn, self._turn = self._turn, _Turn()
        if turn.events or turn.replies or turn.history or turn.consults:
            self.broken = True
            self._ledger.commit(self._batch(turn))
            for consult in turn.consults:
                self._advisor.consult(consult, self._ledger.history(consult.machine))
            self.broken = False
        if turn.discards:
            self._discard(turn.discards)
        turn.orders.acks = messages
        self._transport.carry_out(turn.orders)
        return len(turn.events)

    def _batch(self, turn: _Turn) -> Batch:
        changes = self.engine.take_changes()
        state = self.engine.state
        snapshot = None
        if state.seq >= self._snapshot_due:
            self._snapshot_due = state.seq + SNAPSHOT_EVERY
            snapshot = (state.seq, state_to_json(state))
        return Batch(
            events=turn.events,
            studies=list(changes.studies.values()),
            trials=list(changes.trials.values()),
            epochs=changes.epochs,
            durables=[
                (trial, *made) for (trial, _), made in changes.durables.items() if made is not None
            ],
            discarded=[key for key, made in changes.durables.items() if made is None],
            devices=list(changes.devices.values()),
            commands=turn.replies,
            snapshot=snapshot,
            history=turn.history,
        )
