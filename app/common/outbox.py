"""Send messages outside the scheduler's loop, by threads that wait for sending processes.

Theory of operation. The loop only puts messages in and takes outcomes out. A few threads take due
messages and start a process for each try, which ends by itself after a time. A message that failed
is due again after a pause, which grows with each try, until the message is given up. Nobody waits
for these threads and processes: a scheduler that ends abandons them.

A process has one outbox of each kind. The scheduler may rebuild its runner, which then puts all
messages without an outcome again. A message with a known key is not sent twice.
"""

from __future__ import annotations

import heapq
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from ...base.backoff import Backoff

#: The number of messages that are sent at once.
AT_ONCE = 4
#: The most outcomes that are remembered after they were taken.
REMEMBERED = 1000
#: Seconds that a process may take beyond its own limit.
_GRACE = 10.0

#: The key of a message: the ids of its study and of its decision.
Key = tuple[str, str]


class Message(Protocol):
    """A decision (a dataclass) to send something about a study."""

    @property
    def id(self) -> str: ...
    @property
    def study(self) -> str:
        """The study's id."""

    @property
    def again(self) -> bool:
        """True if the message may have been sent already."""


M = TypeVar("M", bound=Message)


class Outcome(NamedTuple):
    """The outcome of a message, or of one try to send a message.

    ``why`` is the reason for a failure, and is empty if the message was sent.
    """

    why: str
    #: The most tries of a message that has failed for this reason: 1 if every further try would
    #: fail for the same reason. None stands for the number of tries of the outbox.
    limit: int | None = None
    attempts: int = 1
    #: True if the message may have been sent although the try failed.
    unsure: bool = False


class Outbox(Generic[M]):
    """Messages to send, and their outcomes."""

    def __init__(
        self,
        name: str,
        attempt: Callable[[M], Outcome],
        pauses: Backoff,
        *,
        attempts: int | None = None,
        most: int | None = None,
    ) -> None:
        """``name`` is a word for the messages. ``attempt`` sends one message and may take long.

        ``attempts`` is the most tries of a message. If ``most`` messages wait, further ones are
        given up at once. None means no limit.
        """
        self._name = name
        self._attempt = attempt
        self._pauses = pauses
        self._attempts = attempts
        self._most = most
        self._changed = threading.Condition()
        #: The waiting messages, each after its due time (monotonic seconds), number and tries.
        self._due: list[tuple[float, int, int, M]] = []
        #: The outcome of each message, in the order of arrival; None if it is still to be sent.
        self._outcomes: dict[Key, Outcome | None] = {}
        #: Messages whose outcome was taken. The oldest are forgotten if there are too many.
        self._collected: dict[Key, None] = {}
        self._threads = 0
        self._count = 0

    def put(self, message: M) -> None:
        """Queue a message for sending, unless a message with the same key was queued before."""
        with self._changed:
            key = key_of(message)
            if key in self._outcomes:
                return
            for old in list(self._collected)[: max(0, len(self._collected) - REMEMBERED)]:
                del self._collected[old]
                self._outcomes.pop(old, None)
            self._outcomes[key] = None
            if self._most is not None and len(self._due) >= self._most:
                self._outcomes[key] = Outcome(f"{self._most} {self._name} wait to be sent already")
                return
            self._enter(message, time.monotonic(), 0)
            if self._threads < AT_ONCE:
                self._threads += 1
                # A daemon, since the process that it waits for may hang.
                threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def ended(self, keys: Collection[Key]) -> dict[Key, Outcome]:
        """Return the outcomes, by key, of those messages among ``keys`` that have an outcome."""
        with self._changed:
            outcomes = {key: self._outcomes.get(key) for key in keys}
            ended = {key: outcome for key, outcome in outcomes.items() if outcome is not None}
            self._collected.update(dict.fromkeys(ended))
        return ended

    def _enter(self, message: M, at: float, attempts: int) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, self._count, attempts, message))
        self._changed.notify()

    def _work(self) -> None:
        while True:
            attempts, message = self._next()
            try:
                outcome = self._attempt(message)
            except Exception as error:  # the thread serves others, too
                outcome = Outcome(f"it could not be sent ({type(error).__name__})")
            attempts += 1
            with self._changed:
                limits = [each for each in (outcome.limit, self._attempts) if each is not None]
                last = attempts >= min(limits, default=math.inf)
                if outcome.why and not last:
                    if outcome.unsure:
                        message = cast(M, replace(cast(Any, message), again=True))
                    self._enter(message, time.monotonic() + self._pauses.after(attempts), attempts)
                else:
                    self._outcomes[key_of(message)] = outcome._replace(attempts=attempts)

    def _next(self) -> tuple[int, M]:
        """Wait until a message is due; return its number of tries so far, and the message."""
        with self._changed:
            while not self._due or self._due[0][0] > time.monotonic():
                remaining = self._due[0][0] - time.monotonic() if self._due else None
                self._changed.wait(remaining)
            _, _, attempts, message = heapq.heappop(self._due)
            return attempts, message


def key_of(message: Message) -> Key:
    """Return the key of a message: its study and its id."""
    return message.study, message.id


def try_in_process(module: str, asked: Mapping[str, Any], seconds: float, who: str) -> Outcome:
    """Run a module that sends a message, and wait for the module's end.

    The module reads ``asked`` as JSON, writes the fields of ``Outcome`` as JSON, and ends by itself
    after ``seconds``. ``who`` names the receiver in error messages.
    """
    # -P: a file in the working directory is never imported in place of a library.
    command = [sys.executable, "-P", "-m", module]
    try:
        ran = subprocess.run(
            command,
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=seconds + _GRACE,
            start_new_session=True,  # Ctrl-C is for who started it
            check=False,
        )
        return Outcome(**json.loads(ran.stdout))
    except (subprocess.TimeoutExpired, TypeError, ValueError):
        return Outcome(f"{who} did not answer within {seconds:g} s", unsure=True)
    except OSError as error:
        return Outcome(f"no process could be started ({error.strerror})")
