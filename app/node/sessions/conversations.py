"""Sort a trainer's messages by the run that each belongs to.

Theory of operation. A trainer may have several *runs* open: segments that it was given and that are
not over. All runs share one socket. Each message carries the trial and the fence of its run, and
each run has a session that waits for the run's messages. One of the waiting sessions reads the
socket for all. It puts messages for other sessions aside, and wakes these. When it has its own
message, the next session reads. So with one run open, the usual case, no other thread is involved.

A message about a state that became durable belongs to no run: the reading session hands it on. A
message of a run that is not open any more, because it was fenced off, is dropped. If the trainer
has ended, all sessions are told.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Message = dict[str, Any]
#: A run: its trial and its fence.
Key = tuple[str, int]

#: Messages of no single run.
_DURABLE = ("durable", "undurable")


class TrainerGone(Exception):
    """Raised if the trainer's process has ended or sent an invalid message. The text says how.

    ``code`` is the exit status if the process ended itself, ``error`` the uncaught exception.
    ``lost``: it is unknown how the process ended, because the launcher process has gone or does not
    answer. ``unfit``: the study's environment cannot start a trainer that the worker can use.
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
    """The open runs of one trainer. Any thread may call its methods."""

    def __init__(self, read: Callable[[float], Message | None]) -> None:
        """``read(timeout)`` returns the next message, or None after ``timeout`` seconds.

        It may raise ``TrainerGone``. One thread at a time calls it.
        """
        self._read = read
        self._open: dict[Key, deque[Message]] = {}
        self._changed = threading.Condition(threading.Lock())
        self._reading = False
        #: The number of threads that wait to read alone. Sessions let them go first.
        self._waiting = 0
        #: Number of threads that wait for a change.
        self._asleep = 0
        self._loss: TrainerGone | None = None

    @property
    def open(self) -> int:
        """The number of open runs."""
        return len(self._open)

    def begin(self, run: Key) -> bool:
        """Open a run before the trainer hears of it; return True if others are open already."""
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

        ``durable`` is called with each message about a state that became durable or could not.
        Raises ``TrainerGone`` once all earlier messages have been read.
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
                # Also where the trainer talks of other runs without a pause.
                if not self._open[run] and not self._loss and time.monotonic() >= deadline:
                    return None

    def _is_taken(self) -> bool:
        return self._reading or self._waiting > 0

    def _wait(self, timeout: float | None = None) -> bool:
        """Wait for a change; return False if there is none in ``timeout`` seconds."""
        self._asleep += 1
        try:
            return self._changed.wait(timeout)
        finally:
            self._asleep -= 1

    def _wake(self) -> None:
        """Wake the threads that wait for a change. With one run open, the usual case, none does."""
        if self._asleep:
            self._changed.notify_all()

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Release the lock while the body runs, so that other threads may take it."""
        self._changed.release()
        try:
            yield
        finally:
            self._changed.acquire()

    def _read_for_all(self, timeout: float) -> Message | None:
        """Read and return one message, also put to its run; None after ``timeout`` seconds."""
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
        except TypeError:  # of a list, say: it is no run's
            return
        if run is not None:
            run.append(message)

    def read_now(self) -> Message | None:
        """Return a message that has arrived, also put to its run if that is open, or None.

        Call within ``reading_alone``. A run may have been opened since. Raises ``TrainerGone``.
        """
        message = self._read(0.0)
        if message is not None:
            with self._changed:
                self._put(message)
                self._wake()
        return message

    @contextmanager
    def reading_alone(self, *, wait: bool) -> Iterator[bool]:
        """Keep other threads from reading, and yield True.

        If another thread reads now, wait for it, or yield False without ``wait``.
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
