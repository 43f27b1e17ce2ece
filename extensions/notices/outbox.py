"""Sends notices apart from the scheduler's loop: threads that wait for processes which send.

Theory of operation. The loop only puts notices in and takes outcomes out. A few threads take what
is due and start a process for each try, which ends within ``send.TIMEOUT``; what fails is due again
after a pause, ever longer, until it is given up. Threads and processes are nobody's to wait for: a
scheduler that ends leaves them.

One outbox serves a process. The scheduler may rebuild its runner, which then asks again for all
that has no answer: what is known here by its key is not sent twice.
"""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from ...profiling.base.backoff import Backoff
from . import letters, send
from .addresses import resolve, shown
from .events import Tell

#: The number of messages that are sent at once.
AT_ONCE = 4
#: The most notices that wait; further ones are given up at once.
MOST = 1000
#: The most tries of a notice, and the pauses between them (seconds): for some ten minutes.
TRIES = 10
PAUSES = Backoff(first=1.0, longest=300.0)
#: Seconds that a process may take beyond its own limit.
_GRACE = 10.0

#: The key by which a notice is known: the ids of its study and of its decision.
Key = tuple[str, str]


class Outcome(NamedTuple):
    """The end of a notice, or of a try: ``why`` it was not sent; empty if it was."""

    why: str
    #: True if another try would end alike.
    lasts: bool = False
    tries: int = 1


class Outbox:
    """Notices that are to be sent, and what has become of them."""

    def __init__(self, attempt: Callable[[Tell], Outcome], pauses: Backoff = PAUSES) -> None:
        """``attempt`` sends a notice; it may take long."""
        self._attempt = attempt
        self._pauses = pauses
        self._changed = threading.Condition()
        #: When each notice is due (monotonic seconds), in which order it came, and its tries.
        self._due: list[tuple[float, int, int, Tell]] = []
        #: The notices that are to be sent (None) or have ended, in order.
        self._known: dict[Key, Outcome | None] = {}
        #: Those of them whose outcome was taken, which are forgotten when there are many.
        self._taken: dict[Key, None] = {}
        self._threads = 0
        self._count = 0

    def put(self, notice: Tell) -> None:
        """Have a notice sent, unless it is known."""
        with self._changed:
            if key_of(notice) in self._known:
                return
            for old in list(self._taken)[: max(0, len(self._taken) - MOST)]:
                del self._taken[old]
                self._known.pop(old, None)
            self._known[key_of(notice)] = None
            if len(self._due) >= MOST:
                self._known[key_of(notice)] = Outcome(f"{MOST} notices wait to be sent already")
                return
            self._enter(notice, time.monotonic(), 0)
            if self._threads < AT_ONCE:
                self._threads += 1
                # What it waits for may hang, and must not keep the process from its end.
                threading.Thread(target=self._work, name="notices", daemon=True).start()

    def ended(self, keys: Collection[Key]) -> dict[Key, Outcome]:
        """Return the outcomes of those of ``keys`` that have one."""
        with self._changed:
            found = {key: self._known.get(key) for key in keys}
            ended = {key: outcome for key, outcome in found.items() if outcome is not None}
            self._taken.update(dict.fromkeys(ended))
        return ended

    def _enter(self, notice: Tell, at: float, tries: int) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, self._count, tries, notice))
        self._changed.notify()

    def _work(self) -> None:
        while True:
            tries, notice = self._next()
            try:
                outcome = self._attempt(notice)
            except Exception as error:  # the thread serves others, too
                outcome = Outcome(f"it could not be sent ({type(error).__name__})")
            tries += 1
            with self._changed:
                if outcome.why and not outcome.lasts and tries < TRIES:
                    self._enter(notice, time.monotonic() + self._pauses.after(tries), tries)
                else:
                    self._known[key_of(notice)] = outcome._replace(tries=tries)

    def _next(self) -> tuple[int, Tell]:
        """Wait for a notice that is due; return its tries so far, and itself."""
        with self._changed:
            while not self._due or self._due[0][0] > time.monotonic():
                left = self._due[0][0] - time.monotonic() if self._due else None
                self._changed.wait(left)
            _, _, tries, notice = heapq.heappop(self._due)
            return tries, notice


def key_of(notice: Tell) -> Key:
    """Return what a notice is known by."""
    return notice.study, notice.id


def attempt(notice: Tell) -> Outcome:
    """Send a notice in a process of its own, and wait for its end."""
    address = resolve(notice.to, os.environ)
    if address is None:
        return Outcome(f"{shown(notice.to)} is not set where the scheduler runs", lasts=True)
    return deliver(address, letters.title(notice), letters.body(notice), letters.MARKS[notice.kind])


def deliver(address: str, title: str, body: str, mark: str) -> Outcome:
    """Send a message in a process of its own, and wait for its end."""
    asked = {"address": address, "title": title, "body": body, "mark": mark}
    # -P: a file in the working directory is never imported in place of a library.
    command = [sys.executable, "-P", "-m", send.__name__]
    try:
        ran = subprocess.run(
            command,
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=send.TIMEOUT + _GRACE,
            start_new_session=True,  # Ctrl-C is for who started it
            check=False,
        )
        found = json.loads(ran.stdout)
        return Outcome(found["why"], found["lasts"])
    except (subprocess.TimeoutExpired, ValueError):
        return Outcome(f"the service did not answer within {send.TIMEOUT} s")
    except OSError as error:
        return Outcome(f"no process could be started ({error.strerror})")
