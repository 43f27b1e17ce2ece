"""Sort a trainer's messages by the run that each message belongs to.

Theory of operation. A trainer may have several open *runs*: segments that the trainer was given and
that are not over. All runs share one socket. Each message names the trial and the fence (the number
of the attempt) of its run, and each run has a session that waits for the run's messages.

One of the waiting sessions reads the socket for all sessions. The reading session stores messages
for other sessions and wakes these sessions. When the reading session has its own message, the next
session takes over. So with one open run, which is the usual case, no other thread is involved.

A message about a state that became durable belongs to no run. The session that reads it passes it
on to the worker. A message of a run that is no longer open, because the run was fenced off, is
dropped. If the trainer has ended, all sessions are told.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Message = dict[str, Any]
#: The key of a run: the id of its trial and its fence.
Key = tuple[str, int]

#: The kinds of messages that belong to no single run.
_DURABLE = ("durable", "undurable")


class TrainerGone(Exception):
    """The trainer's process has ended or sent an invalid message. The text of the error says how.

    ``code`` is the exit status if the process ended itself, and ``error`` is the uncaught exception
    that ended it. ``lost`` is True if nobody knows how the process ended, because the launcher
    process is gone or does not answer. ``unfit`` is True if the study's environment cannot start a
    trainer that the worker can use.
    """

    def __init__(
        self,
        how: str,
        code: int | None = None,
        error: str = "",
        *,
        lost: bool = False,
        unfit: bool = False,
    ) -> None:
        super().__init__(how)
        self.code = code
        self.error = error
        self.lost = lost
        self.unfit = unfit


class Conversations:
    """The open runs of one trainer. Any thread may call the methods."""

    def __init__(self, read: Callable[[float], Message | None]) -> None:
        """Create an object without open runs.

        ``read(timeout)`` returns the trainer's next message, or None after ``timeout`` seconds. The
        call may raise TrainerGone. Only one thread at a time calls it.
        """
        self._read = read
        self._open: dict[Key, deque[Message]] = {}
        self._changed = threading.Condition(threading.Lock())
        self._reading = False
        #: The number of threads that wait in ``reading_alone``. Sessions let these threads go
        #: first.
        self._waiting = 0
        #: The number of threads that wait for a change.
        self._asleep = 0
        self._loss: TrainerGone | None = None

    @property
    def open(self) -> int:
        """The number of open runs."""
        return len(self._open)

    def begin(self, run: Key) -> bool:
        """Open a run, before the trainer is told of the run.

        Return True if other runs are open already.
        """
        with self._changed:
            behind = bool(self._open)
            self._open[run] = deque()
        return behind

    def end(self, run: Key) -> None:
        """Close a run that is over. Later messages of the run are dropped."""
        with self._changed:
            del self._open[run]

    def next(self, run: Key, timeout: float, durable: Callable[[Message], None]) -> Message | None:
        """Return the next message of an open run, or None after ``timeout`` seconds.

        ``durable`` is called with each message that says that a trial's state is in the store, or
        could not be written. Raises TrainerGone if the trainer has ended and all its earlier
        messages have been read.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                while not (messages := self._open[run]) and self._loss is None and self._is_taken():
                    if not self._wait(max(0.0, deadline - time.monotonic())):
                        return None
                if messages:
                    return messages.popleft()
                if self._loss is not None:
                    raise self._loss
                message = self._read_for_all(max(0.0, deadline - time.monotonic()))
                if message is not None and message.get("op") in _DURABLE:
                    with self._unlocked():
                        durable(message)
                # This also ends the wait if the trainer sends messages of other runs all the time.
                if not self._open[run] and not self._loss and time.monotonic() >= deadline:
                    return None

    def _is_taken(self) -> bool:
        return self._reading or self._waiting > 0

    def _wait(self, timeout: float | None = None) -> bool:
        """Wait for a change. Return False if nothing changes in ``timeout`` seconds."""
        self._asleep += 1
        try:
            return self._changed.wait(timeout)
        finally:
            self._asleep -= 1

    def _wake(self) -> None:
        """Wake the threads that wait for a change. With one run open, no thread waits."""
        if self._asleep:
            self._changed.notify_all()

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Release the lock while the body of the ``with`` statement runs."""
        self._changed.release()
        try:
            yield
        finally:
            self._changed.acquire()

    def _read_for_all(self, timeout: float) -> Message | None:
        """Read one message, store it for its run, and return it.

        Return None after ``timeout`` seconds.
        """
        message: Message | None = None
        loss: TrainerGone | None = None
        self._reading = True
        try:
            with self._unlocked():
                message = self._read(timeout)
        except TrainerGone as error:
            loss = error
        finally:
            self._reading = False
            self._loss = loss
            if message is not None:
                self._put(message)
            self._wake()
        return message

    def _put(self, message: Message) -> None:
        if message.get("op") == "ready":
            for each in self._open.values():
                each.append(message)
            return
        try:
            run = self._open.get((message.get("trial", ""), message.get("fence", 0)))
        except TypeError:  # an unhashable value, such as a list, which names no run
            return
        if run is not None:
            run.append(message)

    def read_now(self) -> Message | None:
        """Return a message that has already arrived, or None if there is none.

        If the message's run is open, the message is also stored for the run. Call this within
        ``reading_alone``. Raises TrainerGone if the trainer has ended.
        """
        message = self._read(0.0)
        if message is not None:
            with self._changed:
                self._put(message)
                self._wake()
        return message

    @contextmanager
    def reading_alone(self, *, wait: bool) -> Iterator[bool]:
        """Keep other threads from reading the socket while the body of the ``with`` statement runs.

        If another thread is reading now, the call waits for that thread. If ``wait`` is False, it
        does not wait and yields False, and the other thread goes on reading. In all other cases it
        yields True.
        """
        with self._changed:
            self._waiting += wait
            while wait and self._reading:
                self._wait()
            self._waiting -= wait
            alone = not self._reading
            self._reading = True
        try:
            yield alone
        finally:
            if alone:
                with self._changed:
                    self._reading = False
                    self._wake()
