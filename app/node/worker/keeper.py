"""The two threads of a worker that do everything except run segments.

The keeper keeps the device registered and the leases alive, with one pipeline of commands (a
*beat*) every third of a lease. The keeper passes the broker's answers (go on, cut now, or fenced
off) on to the sessions. The keeper also reads which trials were released, and notices if the node
agent is gone. The keeper waits for nothing but the broker: if it were late, every segment of the
worker would be lost.

The reader of idle trainers reads messages of trainers in which no segment runs: a checkpoint became
durable, or the trainer ended. The reader also ends trainers that are no longer needed. The reader
may wait for the launcher process, which may be slow.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from dataclasses import asdict
from typing import Any, Protocol
from uuid import uuid4

import redis

from ....base.errors import BackendError
from ....profiling.devices.device import Device
from ...broker import connection, protocol
from ...broker.dropped import Dropped
from ...common.ports import MAX_ROUND_TRIP
from ..launching.variables import AGENT_VARIABLE
from ..sessions.conversations import TrainerGone
from ..sessions.session import Session
from ..sessions.trainer import Trainer
from .lanes import Lane

log = logging.getLogger(__name__)

#: Seconds between two checks for trainers that are no longer needed.
TIDY_INTERVAL = 1.0
#: The factor by which the stored round trip shrinks with each beat that is shorter.
DECAY = 0.8
#: The number of messages in a row after which an idle trainer is ended. Penstock's own code never
#: sends that many.
MAX_MESSAGES = 10_000


class Listener(Protocol):
    """The receiver of the keeper's findings. The methods are called on the keeper's thread."""

    def released(self, trial: str, study: str) -> None: ...

    def agent_gone(self) -> None: ...


class IdleListener(Protocol):
    """The receiver of findings about idle trainers.

    The methods are called on the reader's thread.
    """

    def durable(self, trainer: Trainer, line: dict[str, Any]) -> None: ...

    def ended(self, lane: Lane, how: str) -> None: ...

    def tidy(self) -> None: ...


class Keeper(threading.Thread):
    """The keeper of a device. The slots' threads add sessions and remove them again."""

    def __init__(
        self, device: Device, url: str, lease_ms: int, listener: Listener, folder: str
    ) -> None:
        """Create a keeper for ``device``, without sessions.

        ``lease_ms`` is the lease in milliseconds. ``folder`` is the id of the worker's state folder
        (``Settings.folder_id``).
        """
        super().__init__(name="keeper", daemon=True)
        self.incarnation = uuid4().hex
        self.draining = False
        self._device = device
        self._url = url
        self._lease_ms = lease_ms
        self._folder = folder
        self._listener = listener
        # If the broker does not answer, the keeper is delayed by one beat at most.
        self._client = connection.connect(url, timeout=max(0.3, lease_ms / 3000))
        self._dropped = Dropped()
        self._sessions: dict[str, Session] = {}
        self._outbox: deque[protocol.Command] = deque()
        self._seen_release = "0"
        self._away = False
        #: The longest duration, in seconds, of the recent beats.
        self._round_trip = 0.0
        self._over = False
        self._due = 0.0
        #: True if a beat must be sent at once, even if another beat is under way.
        self._beat_wanted = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._agent = sys.stdin.fileno() if os.environ.get(AGENT_VARIABLE) == "1" else -1
        if self._agent >= 0:
            self._epoll.register(self._agent, select.EPOLLIN)

    # -- for other threads -----------------------------------------------------------------------

    def add(self, session: Session) -> None:
        """Start to renew the lease of ``session``, whose segment was claimed just now."""
        self._sessions[session.owner] = session
        if time.monotonic() + session.task.lease_ms / 3000 < self._due:
            self._beat_now()

    def remove(self, session: Session) -> None:
        self._sessions.pop(session.owner, None)

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def post(self, command: protocol.Command) -> None:
        """Send ``command`` to the broker soon, and retry until the broker has it."""
        self._outbox.append(command)
        self.wake()

    def drain(self) -> None:
        """Tell the scheduler that this device takes no more segments.

        A signal handler may call this.
        """
        self.draining = True
        self._beat_now()

    def called(self, attempt: str) -> None:
        """Send a beat at once if one of this worker's sessions runs the attempt ``attempt``.

        ``attempt`` is the attempt's key on the broker.
        """
        sessions = list(self._sessions.values())
        if any(protocol.attempt_key(session.task.trial) == attempt for session in sessions):
            self._beat_now()

    def _beat_now(self) -> None:
        self._beat_wanted = True
        self.wake()

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """End the thread, and tell the scheduler that the device is gone."""
        self._over = True
        self.wake()
        self.join()
        self.sign_off()

    def sign_off(self) -> None:
        """Tell the scheduler that the device is gone.

        Call this on the keeper's thread, or after that thread has ended. The device's record stays
        on the broker, where it shows whether the device was draining.
        """
        device = self._device.name
        try:
            with connection.translate_errors(self._url):
                self._client.hset(protocol.DEVICES, device, self._record())
                self._client.delete(protocol.alive_key(device))
        except BackendError as error:
            log.debug("%s", error)  # the entry expires by itself

    # -- the thread ------------------------------------------------------------------------------

    def run(self) -> None:
        while not self._over:
            for fd, _ in self._epoll.poll(max(0.0, self._due - time.monotonic())):
                try:
                    self._event(fd)
                except Exception:  # the keeper must survive any error, as below
                    log.exception("the keeper failed to handle an event")
            try:
                self._send()
            except BackendError as error:
                if not self._away:
                    log.warning("%s", error)
                self._away = True
                self._due = time.monotonic() + self._period()
            except Exception:
                # A worker without its keeper loses every lease. So the error is only logged.
                log.exception("the keeper failed")
                self._due = time.monotonic() + self._period()

    def _event(self, fd: int) -> None:
        if fd == self._wake:
            os.eventfd_read(fd)
        elif not os.read(fd, 4096):
            self._epoll.unregister(fd)
            self._listener.agent_gone()

    def _period(self) -> float:
        """Return the seconds between two beats, which is a third of the shortest lease."""
        leases = [session.task.lease_ms for session in list(self._sessions.values())]
        return min([self._lease_ms, *leases]) / 3000

    def _send(self) -> None:
        """Send the commands in the outbox, and the beat if a beat is due, in one round trip."""
        posted = len(self._outbox)
        commands = [self._outbox[i] for i in range(posted)]
        beat = time.monotonic() >= self._due or self._beat_wanted
        self._beat_wanted = False
        sessions = list(self._sessions.values())
        if beat:
            commands += self._registration()
            commands += [_beat(session) for session in sessions]
        if not commands:
            return
        started = time.monotonic()
        with connection.translate_errors(self._url):
            answers = protocol.execute(self._client, commands)
            if any(map(connection.is_wrong_type, answers)):
                self._dropped.remove_misplaced(self._client)
                self._dropped.count(self._client)
        for answer in answers:
            if isinstance(answer, redis.RedisError):
                raise BackendError(f"the broker refuses: {answer}")
        self._away = False
        for _ in range(posted):
            self._outbox.popleft()
        if beat:
            took = min(time.monotonic() - started, MAX_ROUND_TRIP)
            self._round_trip = round(max(took, DECAY * self._round_trip), 4)
            self._due = started + self._period()
            self._take(answers[posted:], sessions)

    def _record(self) -> str:
        device = asdict(self._device)
        fields = {"device": device, "incarnation": self.incarnation, "draining": self.draining}
        return json.dumps(fields | {"round_trip": self._round_trip})

    def _registration(self) -> list[protocol.Command]:
        alive = protocol.alive_key(self._device.name)
        return [
            ("HSET", protocol.DEVICES, self._device.name, self._record()),
            ("SET", alive, self._folder, "PX", self._lease_ms),
            ("XRANGE", protocol.RELEASES, f"({self._seen_release}", "+", "COUNT", 1000),
        ]

    def _take(self, answers: list[Any], sessions: list[Session]) -> None:
        for entry, fields in answers[2]:
            self._seen_release = entry
            release = protocol.pairs(fields)
            if trial := release.get("t"):
                self._listener.released(trial, release.get("s", ""))
        for session, answer in zip(sessions, answers[3:], strict=True):
            session.on_beat(int(answer))


def _beat(session: Session) -> protocol.Command:
    task = session.task
    keys = (protocol.attempt_key(task.trial), protocol.lease_key(task.trial, task.rank))
    return protocol.BEAT.command(keys, (task.fence, session.owner, task.lease_ms, task.rank))


class IdleTrainers(threading.Thread):
    """The reader of idle trainers. The slots' threads add trainers and remove them again."""

    def __init__(self, listener: IdleListener) -> None:
        super().__init__(name="idle-trainers", daemon=True)
        self._listener = listener
        self._idle: dict[int, tuple[Lane, Trainer]] = {}
        self._over = threading.Event()
        self._epoll = select.epoll()

    def watch(self, lane: Lane, trainer: Trainer) -> None:
        """Start to read the messages of ``trainer``, in which no segment runs now."""
        for fd in trainer.descriptors:
            self._idle[fd] = (lane, trainer)
            self._epoll.register(fd, select.EPOLLIN)

    def leave(self, trainer: Trainer) -> None:
        """Stop reading ``trainer``, because the session of its next segment reads its messages."""
        for fd in trainer.descriptors:
            if self._idle.pop(fd, None):
                self._epoll.unregister(fd)

    def read(self, lane: Lane, trainer: Trainer) -> None:
        """Read the messages that an idle trainer has sent so far.

        If the trainer has ended, report its end.
        """
        with trainer.conversations.reading_alone(wait=False) as alone:
            ending = self._read(trainer) if alone else ""  # if not alone, a session reads now
        if ending:
            self.leave(trainer)
            self._listener.ended(lane, ending)

    def _read(self, trainer: Trainer) -> str:
        """Read the trainer's messages.

        Return how the trainer ended, or an empty text if it has not.
        """
        received = 0
        try:
            while (line := trainer.conversations.read_now()) is not None:
                if line.get("op") in ("durable", "undurable"):
                    self._listener.durable(trainer, line)
                received += 1
                if received == MAX_MESSAGES:  # other trainers must not wait any longer
                    trainer.end()
                    return f"it sent {received:,} messages in a row"
        except TrainerGone as error:
            return str(error)
        return ""

    def stop(self) -> None:
        """Stop the thread.

        The method does not wait, because the thread may wait for the launcher process.
        """
        self._over.set()

    def run(self) -> None:
        next_tidy = 0.0
        while not self._over.is_set():
            try:
                for fd, _ in self._epoll.poll(max(0.0, next_tidy - time.monotonic())):
                    if idle := self._idle.get(fd):
                        self.read(*idle)
                if time.monotonic() >= next_tidy:
                    self._listener.tidy()
                    next_tidy = time.monotonic() + TIDY_INTERVAL
            except Exception:  # a worker without this thread would keep ended trainers
                log.exception("the reader of idle trainers failed")
                self._over.wait(TIDY_INTERVAL)
