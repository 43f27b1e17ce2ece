"""A worker's calls to the broker (claims, reports and questions), with retries during an outage."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import redis
from pydantic import TypeAdapter, ValidationError

from ....base.backoff import Backoff
from ....base.errors import BackendError
from ....wire.messages import (
    Forged,
    SegmentTask,
    check_seal,
    dumps,
    open_task,
    parse,
    seal,
)
from ...broker import connection, presence, protocol
from ...broker.dropped import Dropped

log = logging.getLogger(__name__)

#: Seconds for which a report is retried while the broker is away. The attempt's lease expires long
#: before the end of this time, but the trial stays warm in its trainer.
REPORT_TIMEOUT = 60.0
#: Seconds for which a claim is retried. The time is short, because the scheduler soon dispatches an
#: unclaimed segment again.
CLAIM_TIMEOUT = 5.0
#: Seconds between two checks whether a waiting gang is still needed.
RENDEZVOUS_POLL = 0.25
#: Seconds after which a question without an answer is repeated. The scheduler may have been killed.
ASK_TIMEOUT = 2.0
#: The pauses, in seconds, between retries of a call.
PAUSES = Backoff(first=0.02, longest=1.0)

#: The reader for the JSON list of a gang's trainers, which each rank receives.
_IDENTITIES = TypeAdapter(tuple[str, ...])

_T = TypeVar("_T")


class Link:
    """A worker's connection to the broker. Any thread may call the methods."""

    def __init__(self, url: str) -> None:
        self.client = connection.connect(url)
        self.url = url
        self.closing = threading.Event()
        self._key = b""
        self._dropped = Dropped()

    def open(self, text: object, mark: object) -> SegmentTask:
        """Return the task in a message, after a check of its seal.

        Raises Forged if the seal is wrong, and BackendError if the installation's key cannot be
        read.
        """
        try:
            return open_task(self._key, text, mark)
        except Forged:
            # The installation may be a new one: read its key again. If the key is the same, the
            # message is forged.
            key = self._key
            self._key = self.installation_key()
            if self._key == key:
                raise
            return open_task(self._key, text, mark)

    def installation_key(self) -> bytes:
        installation = presence.fetch_installation(self.client, self.url)
        if installation is None:
            raise BackendError(
                "no scheduler has used this broker yet: start one with `penstock up`"
            )
        return installation.key

    def address(self) -> str:
        """Return the address of this node at which trainers on other nodes can reach its trainers.

        The address is the local end of a connection from this node to the broker. The broker may
        see a different address if the node is behind a NAT or a proxy. Raises BackendError if the
        broker stays away.
        """
        if self.url.startswith("redis+socket://"):
            return "127.0.0.1"

        def look() -> str:
            try:
                where = connection.server_of(self.client)
                with socket.create_connection(where, connection.CONNECT_TIMEOUT) as way:
                    return str(way.getsockname()[0])
            except OSError as error:
                raise redis.ConnectionError(str(error)) from error

        return self._retry(REPORT_TIMEOUT, look)

    def claim(self, task: SegmentTask, owner: str, trainer: str = "") -> str:
        """Claim a segment for ``owner``. Return ``ok``, or the reason why the claim is refused.

        ``owner`` is an id that is new for each claim. The reasons are ``stale``, ``done`` and
        ``dup`` (claimed already). ``trainer`` is the identity of the trainer that will be this rank
        (member) of a gang. Raises BackendError if the broker stays away.
        """
        ranks = range(len(task.queues)) if len(task.queues) > 1 else ()
        rendezvous = [protocol.rendezvous_key(task.trial, task.fence, rank) for rank in ranks]
        keys = (*self._keys(task), *rendezvous)
        args = (
            *(task.fence, owner, task.lease_ms, task.rank),
            *(trainer, protocol.RENDEZVOUS_EXPIRES),
        )
        return self._retry(
            CLAIM_TIMEOUT, lambda: str(protocol.call(self.client, protocol.CLAIM, keys, *args))
        )

    def rendezvous(self, task: SegmentTask, still: Callable[[], bool]) -> tuple[str, ...] | None:
        """Return the identities of the gang's trainers by rank, once all ranks have claimed.

        Returns None if ``still()`` becomes false or the worker closes before that, or if the list
        of trainers cannot be read.
        """
        while still() and not self.closing.is_set():
            identities = self._retry(REPORT_TIMEOUT, lambda: self._meeting(task))
            if identities is not None:
                try:
                    return _IDENTITIES.validate_json(identities)
                except ValidationError as error:
                    log.warning("%s: no list of its gang's trainers: %s", task.task_id, error)
                    return None
        return None

    def _meeting(self, task: SegmentTask) -> str | None:
        """Return the gang's trainers as JSON, or None if not all ranks have claimed.

        The last claim writes a list of the trainers for each rank, and the list wakes the worker
        that waits for it. The list may be missing: the answer may have been lost, or the list may
        have expired while this rank's trainer was starting. The trainers are then read from the
        attempt's record on the broker, which is valid as long as the attempt counts.
        """
        key = protocol.rendezvous_key(task.trial, task.fence, task.rank)
        woken: Any = self.client.blpop([key], timeout=RENDEZVOUS_POLL)
        if woken:
            return str(woken[1])
        names = (f"trainer{rank}" for rank in range(len(task.queues)))
        words = ("HMGET", protocol.attempt_key(task.trial), "fence", "state", *names)
        fence, state, *trainers = protocol.command(self.client, *words)
        met = fence == str(task.fence) and state == "running" and None not in trainers
        return dumps(trainers) if met else None

    def report(
        self,
        task: SegmentTask,
        owner: str,
        body: dict[str, Any],
        *,
        closes: bool,
        sampled: Sequence[Any] = (),
    ) -> str:
        """Send a report under the task's fence, and return the broker's answer.

        The answer is ``ok``, ``cut`` (accepted, but close the segment soon), ``done`` or ``stale``.
        ``closes`` is True if the report ends the attempt. The parameters in ``sampled`` are
        announced to the study's other trials before the report, in the same round trip.

        Raises BackendError if the broker stays away, and ValueError if ``body`` is not JSON.
        """
        text = dumps(body)
        keys = (*self._keys(task), protocol.REPORTS)
        args = (task.fence, owner, task.rank, int(closes), text, seal(self._key, text))
        if not sampled:
            return self._retry(
                REPORT_TIMEOUT,
                lambda: str(protocol.call(self.client, protocol.REPORT, keys, *args)),
            )
        announcement = self._announcement(task, owner, sampled)
        commands = (announcement, protocol.REPORT.command(keys, args))
        return self._retry(REPORT_TIMEOUT, lambda: str(self._answers(commands)[-1]))

    def ask(
        self,
        task: SegmentTask,
        owner: str,
        body: dict[str, Any],
        *,
        still: Callable[[], bool],
    ) -> dict[str, Any] | None:
        """Send the question ``body`` until the scheduler answers it, and return the answer.

        Returns None if the attempt is fenced off, or if ``still()`` becomes false. Raises
        BackendError if the broker stays away.
        """
        name = protocol.reply_name(uuid4().hex)
        question = {**body, "reply": name}
        while still():
            if self.report(task, owner, question, closes=False) in ("stale", "done"):
                return None
            item: Any = self._retry(
                REPORT_TIMEOUT,
                lambda: self.client.blpop([protocol.PREFIX + name], timeout=ASK_TIMEOUT),
            )
            if item:
                try:
                    return parse(item[1])
                except Forged as error:  # the question is repeated
                    self._dropped.note("replies", name, error)
                    self._dropped.count(self.client)
        return None

    def announce(self, task: SegmentTask, owner: str, sampled: Sequence[Any]) -> None:
        """Announce the parameters that this trial has sampled to the study's other trials.

        An announcement is not retried, so it may be lost. Nothing happens if the attempt no longer
        counts. Raises BackendError if the broker is away.
        """
        with connection.translate_errors(self.url):
            self._answers([self._announcement(task, owner, sampled)])

    def _announcement(
        self, task: SegmentTask, owner: str, sampled: Sequence[Any]
    ) -> protocol.Command:
        text = dumps([{"n": task.number, "sampled": sampled}])
        keys = (protocol.attempt_key(task.trial), protocol.ANNOUNCEMENTS + task.study)
        args = (task.fence, owner, task.rank, text, seal(self._key, text))
        return protocol.ANNOUNCE.command(keys, (*args, protocol.ANNOUNCEMENTS_KEPT))

    def history(self, study: str, after: str) -> tuple[str, list[str]] | None:
        """Return the updates of a study's history since ``after``, and the new position in it.

        ``after`` is the position that an earlier call returned, or empty. The position comes first
        in the result. Texts without this installation's seal are left out.

        Returns None if the broker has lost a part of the history; the scheduler then sends the
        whole history on request. Raises BackendError if the broker stays away.
        """
        # Read announcements first, so that none is read after the update that commits it.
        streams = (protocol.ANNOUNCEMENTS + study, protocol.HISTORY + study)
        announced, end = after.split() or ["0", "0"]
        commands = [("XRANGE", streams[0], f"({announced}", "+"), ("XRANGE", streams[1], end, "+")]
        answers = self._retry(REPORT_TIMEOUT, lambda: self._answers(commands))
        ahead, entries = answers[0] or [], answers[1] or []
        goes_on = bool(entries) and entries[0][0] == end
        if not goes_on and end != "0":  # the entry that was read last is gone: read all again
            again = [("XRANGE", streams[1], "-", "+")]
            [entries] = self._retry(REPORT_TIMEOUT, lambda: self._answers(again))
        texts = self._sealed(streams[1], entries[goes_on:])
        if not (goes_on or _is_whole(texts)):
            return None
        ends = (ahead[-1][0] if ahead else announced, entries[-1][0])
        texts = [text for text in texts if not protocol.WHOLE.fullmatch(text)]
        return " ".join(ends), [*self._sealed(streams[0], ahead), *texts]

    def _sealed(self, stream: str, entries: Sequence[tuple[str, Any]]) -> list[str]:
        """Return the texts in ``entries`` that have this installation's seal.

        Note the others as dropped.
        """
        texts = []
        for _, raw in entries:
            fields = protocol.pairs(raw)
            try:
                texts.append(check_seal(self._key, fields.get("p"), fields.get("s")))
            except Forged as error:
                self._dropped.note("keys", stream, error)
        return texts

    def _answers(self, commands: Sequence[protocol.Command]) -> list[Any]:
        """Send ``commands`` in one round trip and return their answers.

        Raises RedisError if any of the commands failed.
        """
        answers = protocol.execute(self.client, commands)
        for answer in answers:
            if isinstance(answer, redis.RedisError):
                raise answer
        return answers

    def durable(self, body: dict[str, Any]) -> protocol.Command:
        """Return the command that reports a durable state to the scheduler.

        No fence is needed: the content of the state was verified.
        """
        return ("XADD", protocol.REPORTS, "*", *protocol.sealed(self._key, dumps(body)))

    def _keys(self, task: SegmentTask) -> tuple[str, str]:
        return protocol.attempt_key(task.trial), protocol.lease_key(task.trial, task.rank)

    def _retry(self, timeout: float, attempt: Callable[[], _T]) -> _T:
        until = time.monotonic() + timeout
        failures = 0
        while True:
            try:
                with connection.translate_errors(self.url):
                    return attempt()
            except BackendError as error:
                failures += 1
                if time.monotonic() > until or self.closing.wait(PAUSES.after(failures)):
                    raise
                log.debug("%s; trying again", error)


def _is_whole(texts: Sequence[str]) -> bool:
    """Return True if ``texts``, the first texts of a stream, contain a study's whole history."""
    marks = ((at, protocol.WHOLE.fullmatch(text)) for at, text in enumerate(texts))
    return any(mark is not None and at >= int(mark[1]) for at, mark in marks)
