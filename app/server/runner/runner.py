"""The scheduler's loop: receive messages, decide, write to the ledger, send.

Theory of operation. One turn of the loop takes the messages that have arrived, turns them into
events, and lets the engine handle each event. The turn's events, and all rows that they changed, go
into the ledger in one transaction. Under load many events share one transaction and one sync (a
group commit). Only then are the decisions carried out and the messages acknowledged, in one round
trip to the broker.

A crash before the commit loses nothing: the messages were not acknowledged and are read again. A
crash after the commit loses decisions. The reaper finds these as attempts that were never
published. Events that the engine refuses because they are late or repeated are not written.

An event for which the engine raises ``IllegalTransition`` is not written either. The event's
handler may have changed the state before the error. So the engine is rebuilt from the ledger and
from the turn's earlier events, which the ledger does not have yet. The message that brought the
event is acknowledged with the others, so the scheduler does not read it again after a restart.

The same loop runs for real and in a simulation. The transport, the ledger, the samplers and the
clock are arguments.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from ....base.errors import (
    BackendError,
    BrokenExtension,
    IllegalTransition,
    LedgerDamaged,
    PenstockError,
    UsageError,
)
from ....scheduler.engine.engine import Engine, Refused, Unfit
from ....scheduler.model.decisions import Decision
from ....scheduler.model.events import (
    AttemptLost,
    CallbacksCalled,
    EpochReported,
    Event,
    LedgerRestored,
    StudyExtended,
    StudySubmitted,
    Tick,
    TrialEnqueued,
)
from ....scheduler.outlook.outlook import outlook
from ....wire.messages import Forged
from ...broker.protocol import reply_name
from ...common.clock import Clock
from ...common.ports import CodeFiles, Effects, Message, OpenAttempt, Policies, Samplers, Transport
from ...extensions import of_ends
from ...host.askers import Askers
from ...ledger.adopted import adoption_of
from ...ledger.codec import state_to_json
from ...ledger.history import entries_from_bodies
from ...ledger.lacking import hold_events, lack_events
from ...ledger.ledger import Ledger
from ...ledger.restore import restore
from ...ledger.writes import Batch
from ..advice.policy_host import PluginHost
from . import answers, commands, user_commands
from .broadcast import Broadcast
from .code_by_value import take_in
from .decision_collector import DecisionCollector, Turn
from .listeners import Listeners
from .objective_questions import ObjectiveQuestions, Reply
from .reaper import Reaper
from .reports import read_as, to_events, to_question, to_request
from .users_samplers import UsersSamplers

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds between two surveys of the broker's devices and leases.
SURVEY_EVERY = 0.25
#: The number of events between two snapshots of the engine's state.
SNAPSHOT_EVERY = 2000
#: Seconds after an outage of the broker in which expired keys and leases do not count as silence.
BLIND_AFTER_OUTAGE = 2.0


@cache
def _asking_ledger() -> tuple[str, ...]:
    """Return the kinds of commands that may name a finished study, which only the ledger has."""
    return ("extend", "enqueue", *user_commands.COMMANDS, *commands.of_extensions())


def _failed(message: Message, error: Exception) -> list[tuple[str, str]]:
    """Return the reply to a command that the scheduler failed to handle, for its client.

    The list is empty if ``message`` is not a command.
    """
    if message.stream != "commands":
        return []
    why = f"the scheduler failed over this command, which is a bug of Penstock: {error!r}"
    return [(reply_name(commands.id_of(message.body)), commands.refusal("BackendError", why))]


class Runner:
    """The loop that drives engine, ledger, transport and samplers.

    Each call of ``turn`` runs one turn of the loop.
    """

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
        history: Callable[[str], Sequence[Mapping[str, Any]]] = lambda study: (),
        code: CodeFiles | None = None,
        users_samplers: UsersSamplers | None = None,
        askers: Askers | None = None,
    ) -> None:
        """Create a runner. Call ``start`` before the first ``turn``.

        ``claim_timeout`` and ``survey_every`` are in seconds. ``discard`` is given URIs of
        checkpoints, which it deletes later in the background. ``history`` reads the whole history
        of a study from the ledger (``optuna_bridge.updates``). ``code`` stores code that clients
        send by value (as a pickle), and ``users_samplers`` asks samplers that are sent by value.
        Both are None if no study needs them, as in a simulation. ``askers`` holds the locks of
        scripts that ask for trials.
        """
        self.engine = engine
        #: True if the ledger failed, or if the engine may have handled an event only in part. The
        #: engine may then be ahead of the ledger and must be rebuilt from it.
        self.broken = False
        self._ledger = ledger
        self._transport = transport
        self._users_samplers = users_samplers or UsersSamplers("", lambda study: tuple)
        ask = self._users_samplers.ask
        self._broadcast = Broadcast(history)
        self._questions = ObjectiveQuestions(
            samplers, ask, self._apply, self._carry_out, self._broadcast
        )
        self._carriers = [carrier() for carrier in of_ends("server", "Carrier")]
        self._collector = DecisionCollector(samplers, clock, self._carriers)
        self._policies = policies or PluginHost()
        self._clock = clock
        self._reaper = Reaper(claim_timeout)
        self._listeners = Listeners(askers)
        self._survey_every = survey_every
        self._discard = discard
        self._code = code
        self._next_survey = 0.0
        self._blind_until = 0.0
        #: The time before which no ``Tick`` event (which wakes the engine) is made. Without it, a
        #: ``Tick`` that failed would be due again at once.
        self._no_tick_before = 0.0
        self._snapshot_due = engine.state.seq + SNAPSHOT_EVERY
        self._turn = Turn()

    def look_for_extensions(self) -> None:
        """Pause studies whose extensions are missing. Continue studies whose extensions are back.

        The runner does this before anything else, so that nothing is decided for a study without
        its extension. A snapshot of the state follows, so that no replay crosses the change. Raises
        BackendError if the broker or the ledger does not answer.
        """
        events = list(lack_events(self.engine, self._clock.now()))
        if not events:
            return
        self._transport.open()
        for event in events:
            log.warning("%s", getattr(event, "why", "") or f"{event} no longer lacks it")
            self._apply(event)
        self._write(())
        self.snapshot()

    def restored(self) -> None:
        """Give up all open attempts, because the ledger was restored from an older backup.

        Call this before ``start``. Raises BackendError if the broker or the ledger does not answer.
        """
        self.look_for_extensions()
        self._transport.open()
        now = self._clock.now()
        self._apply(LedgerRestored(at=now))
        self._write(())  # the event releases trials, so it is written before tasks are sent
        self._apply(Tick(at=now))
        self._plan()
        self._write(())

    def start(self, *events: Event) -> None:
        """Open the transport, apply ``events``, and repeat all questions that have no answer yet.

        The questions go to samplers and extensions. The scheduler may have ended before their
        answers came.
        """
        self.look_for_extensions()
        self._transport.open()
        self._broadcast.repeat(self.engine.state)
        for event in events:
            self._apply(event)
        for ask in self.engine.outstanding():
            self._keep(ask)
        for question in self._answer_of(self.engine.questions) or ():
            self._keep(question)
        self._plan()
        self._write(())

    def has_questions(self) -> bool:
        """Return True if an extension waits for an answer.

        An example is the confirmation that a message was sent.
        """
        return bool(self._answer_of(self.engine.questions))

    def turn(self, timeout: float) -> int:
        """Run one turn of the loop. Return the number of events in its last write to the ledger.

        The call waits for messages for at most ``timeout`` seconds. Refused events are not counted.

        Raises BackendError if the broker or the ledger does not answer. If ``broken`` is then True,
        the engine must be rebuilt from the ledger. If ``broken`` is False, only the broker failed,
        and ``turn`` may be called again.
        """
        messages = self._transport.receive(min(timeout, self._until_wake()))
        now = self._clock.now()
        for message in messages:
            self._take(message, now)
        self._timed(now)
        self._plan()
        return self._write(messages)

    def outage(self) -> None:
        """Resume work after an outage of the broker.

        For ``BLIND_AFTER_OUTAGE`` seconds, expired leases are ignored: workers could not renew
        their leases during the outage.
        """
        self._blind_until = self._clock.now() + BLIND_AFTER_OUTAGE
        self._transport.open()
        self._broadcast.repeat(self.engine.state)

    def snapshot(self) -> None:
        """Write the engine's state to the ledger, so that the next start replays no event."""
        state = self.engine.state
        self._ledger.commit(Batch(snapshot=(state.seq, state_to_json(state))))

    # -- receiving -------------------------------------------------------------------------------

    def _take(self, message: Message, now: float) -> None:
        try:
            if message.stream == "commands":
                self._command(message.body, now)
            elif message.body.get("kind") == "suggest":
                question = to_question(message.body)
                self._answer(self._questions.suggest(question, self.engine.state, now))
            elif message.body.get("kind") == "request":
                request = to_request(message.body)
                self._answer(self._questions.request(request, self.engine.state, now))
            else:
                self._report(message.body, now)
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
            effects = Effects(acks=[message], answers=_failed(message, error))
            self._transport.carry_out(effects)
            raise BackendError(f"entry {message.id} of {message.stream} was dropped") from error

    def _report(self, body: Mapping[str, Any], now: float) -> None:
        """Handle a worker's report. Raises Forged if the report cannot be read."""
        try:
            events = to_events(body, now)
        except Forged as why:
            self._end_attempt(body, why, now)
            raise
        for event in events:
            fault = self._apply(event)
            if isinstance(fault, Unfit) or (fault is not None and self._follows_a_lost(event)):
                self._end_attempt(body, fault, now)

    def _follows_a_lost(self, event: Event) -> bool:
        """Return True if ``event`` reports an epoch whose preceding epoch never arrived.

        The check applies only to reports of the trial's newest attempt.
        """
        trial = self.engine.state.trials.get(getattr(event, "trial", ""))
        if trial is None or not isinstance(event, EpochReported):
            return False
        return event.fence == trial.fence and event.epoch > trial.epoch + 1

    def _end_attempt(self, body: Mapping[str, Any], why: Exception, now: float) -> None:
        """End the attempt whose report cannot be read, or does not fit its trial.

        The worker was told that its report has arrived, so the attempt would otherwise stay open.
        """
        attempt = {name: body.get(name) for name in ("trial", "fence")}
        try:
            lost = read_as(AttemptLost, attempt, at=now, reason=str(why))
        except ValueError:  # the report names no attempt
            return
        log.warning("the attempt that reports this ends: %s", why)
        self._apply(lost)

    def _answer(self, reply: Reply | None) -> None:
        """Have this turn send ``reply`` to the objective that asked, unless ``reply`` is None."""
        if reply is not None:
            self._turn.effects.answers.append(reply)

    def _command(self, body: dict[str, Any], now: float) -> None:
        """Carry out a client's command and have this turn send the reply.

        A command that was carried out before, under the same id, is not repeated: its client gets
        the same reply again.
        """
        name = commands.id_of(body)
        if body.get("kind") == "plan":  # a question, which leaves no trace in the ledger
            plan = outlook(self.engine, now)
            self._turn.effects.answers.append(
                (reply_name(name), json.dumps({"ok": True, "plan": plan}))
            )
            return
        # A repeated report of called callbacks changes nothing, so its reply is not kept either.
        is_repeatable = body.get("kind") != "hear"
        reply = (
            (dict(self._turn.replies).get(name) or self._reply_to(name)) if is_repeatable else None
        )
        if reply is None:
            if body.get("kind") in _asking_ledger():
                self._write(())  # so that the ledger has every study that is over
            try:
                reply = json.dumps({"ok": True} | self._carry_out(body, now))
            except PenstockError as error:
                if self.broken or isinstance(error, LedgerDamaged):
                    raise  # the refusal cannot be written either
                reply = commands.refusal(type(error).__name__, str(error))
            if is_repeatable:
                self._turn.replies.append((name, reply))
        self._turn.effects.answers.append((reply_name(name), reply))

    def _carry_out(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Carry out a command at time ``now`` and return the fields of the reply to its client.

        Raises PenstockError if the command is refused.
        """
        if body.get("kind") == "remember":  # only the ledger keeps the entries
            self._turn.history += entries_from_bodies(body.get("entries"))
            return {}
        if body.get("kind") == "adopt":
            self._turn.adopted.append(adoption_of(body, now))
            return {}
        reopened = user_commands.reopening(body, self.engine.state, now, self._ledger.past)
        if reopened is None:
            return self._take_in(body, now)
        self._apply(reopened)
        try:
            return self._take_in(body, now)
        except PenstockError:
            self._apply(user_commands.closing(reopened))
            raise

    def _take_in(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Make and apply the event of a client's command, and return the fields of the reply.

        Raises PenstockError if the command is refused.
        """
        event = commands.to_event(body, self.engine, now, self._ledger.past)
        if isinstance(event, StudySubmitted):
            for settle in of_ends("server", "settle"):
                event = replace(event, study=settle(event.study, self._ledger))
        if isinstance(event, StudySubmitted) or (isinstance(event, StudyExtended) and event.past):
            event = replace(event, earlier=self._ledger.earlier(event.study))
        if self._code is not None:
            take_in(event, body, self._code)
        fault = self._apply(event)
        if body.get("heard") and isinstance(event, StudySubmitted | StudyExtended):
            self._apply(CallbacksCalled(at=now, study=event.study.id))
        if isinstance(fault, IllegalTransition):
            raise BackendError(f"the scheduler failed over this command, which is a bug: {fault}")
        if fault is not None and isinstance(event, TrialEnqueued):
            name = self.engine.state.studies[event.study].spec.name
            raise UsageError(f"all trials of {name} have begun: extend it, then enqueue")
        must_count = body.get("kind") in commands.of_extensions()
        if fault is not None and (must_count or user_commands.must_count(event, self.engine.state)):
            raise UsageError(str(fault))
        return commands.answer(event, self.engine.state)

    def _reply_to(self, command: str) -> str | None:
        self.broken = True
        reply = self._ledger.reply_to(command)
        self.broken = False
        return reply

    def _wake_at(self) -> float | None:
        wake = self._answer_of(self.engine.wake_at)
        return None if wake is None else max(wake, self._no_tick_before)

    def _until_wake(self) -> float:
        wake = self._wake_at()
        wake_at = self._next_survey if wake is None else min(wake, self._next_survey)
        remaining, answered = max(0.0, wake_at - self._clock.now()), self._users_samplers.due()
        return remaining if answered is None else min(remaining, answered)

    def _timed(self, now: float) -> None:
        """Apply the events that are due at time ``now``.

        The events are the findings of a survey, the answers of extensions and of users' samplers,
        and a ``Tick`` event if the engine is due to be woken.
        """
        if now >= self._next_survey:
            self._next_survey = now + self._survey_every
            self._look(now)
        for event in [event for each in self._carriers for event in each.answers(now)]:
            self._apply(event)
        for sampled, reply in self._users_samplers.answers(self.engine.state, now):
            if sampled is not None:
                self._apply(sampled)
            self._answer(reply)
        wake = self._wake_at()
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
            self._broadcast.repeat(self.engine.state)
        blind = now < self._blind_until
        for event in list(self._reaper.findings(survey, self.engine, now, blind=blind)):
            self._apply(event)
        scripts = self._transport.scripts
        for finding in self._listeners.findings(state, scripts, now, blind=blind):
            self._apply(finding)

    # -- deciding --------------------------------------------------------------------------------

    def _apply(self, event: Event) -> Refused | IllegalTransition | None:
        """Let the engine handle one event, and collect its decisions.

        Returns None if the event was accepted. Otherwise the event is not written, and the reason
        is returned: ``Refused`` for an event that does not count, ``IllegalTransition`` for a bug.
        """
        try:
            decisions = self.engine.handle(event)
        except Refused as reason:
            log.debug("%s refused: %s", type(event).__name__, reason)
            return reason
        except IllegalTransition as bug:
            log.exception("a bug of Penstock: %s was dropped", event)
            self._rebuild()
            if isinstance(bug, BrokenExtension) and self._hold(bug):
                return self._apply(event)
            return bug
        self._turn.events.append((self.engine.state.seq, event))
        for decision in decisions:
            self._keep(decision)
        return None

    def _answer_of(self, ask: Callable[[], T]) -> T | None:
        """Return the result of ``ask``, a function of the engine.

        If an extension raises, its studies are paused and ``ask`` is called again. Returns None if
        an extension raises and has no studies left to pause.
        """
        try:
            return ask()
        except BrokenExtension as broken:
            log.exception("a bug of Penstock")
            return self._answer_of(ask) if self._hold(broken) else None

    def _hold(self, broken: BrokenExtension) -> bool:
        """Pause the studies of a broken extension. Return False if there were none to pause."""
        pauses = list(hold_events(self.engine, broken, self._clock.now()))
        for event in pauses:
            self._apply(event)
        return bool(pauses)

    def _rebuild(self) -> None:
        """Replace the engine by one that never saw the last event.

        That event may have changed the engine's state in part.
        """
        self._no_tick_before = self._clock.now() + self._survey_every
        self.broken = True
        self.engine = restore(self._ledger, self.engine.strategies, self._turn.events)
        self.broken = False

    def _keep(self, decision: Decision) -> None:
        answer = self._collector.collect(decision, self.engine.state, self._turn)
        if answer is not None:
            self._apply(answer)

    def _plan(self) -> None:
        """Ask users' policies for the plans that the engine wants, until it wants no more."""
        while (ask := self.engine.state.plan_asked) is not None:
            if self._apply(answers.plans(self._policies, ask, self._clock.now())) is not None:
                return

    # -- writing down and acting -----------------------------------------------------------------

    def _write(self, messages: Sequence[Message]) -> int:
        turn, self._turn = self._turn, Turn()
        if turn.events or turn.replies or turn.history or turn.after or self._broadcast.due:
            self.broken = True
            batch = self._batch(turn)
            self._ledger.commit(batch)
            self._broadcast.collect(batch, self.engine.state, turn.effects)
            for act in turn.after:
                act(self._ledger)
            self.broken = False
        if turn.discards:
            self._discard(turn.discards)
        for spec, question in turn.asked:
            self._users_samplers.ask(spec, question)
        self._users_samplers.begin(self.engine.state)
        turn.effects.acks = messages
        self._transport.carry_out(turn.effects)
        return len(turn.events)

    def _batch(self, turn: Turn) -> Batch:
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
                (trial, *parents)
                for (trial, _), parents in changes.durables.items()
                if parents is not None
            ],
            discarded=[key for key, parents in changes.durables.items() if parents is None],
            devices=list(changes.devices.values()),
            commands=turn.replies,
            snapshot=snapshot,
            history=turn.history,
            adopted=turn.adopted,
        )
