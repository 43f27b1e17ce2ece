"""Sends each notice in a process of its own, and tries again for about ten minutes.

``app.common.outbox`` starts the processes and counts the tries.
"""

from __future__ import annotations

import os

from ...app.common.outbox import Outbox, Outcome, try_in_process
from ...base.backoff import Backoff
from . import letters, send
from .addresses import resolve, shown
from .events import Tell

#: The most notices that wait to be sent. Further notices are given up at once.
MOST = 1000
#: The most tries of a notice, and the pauses between two tries in seconds, about ten minutes in
#: total.
TRIES = 10
PAUSES = Backoff(first=1.0, longest=300.0)


def outbox() -> Outbox[Tell]:
    """Return a new outbox that sends notices."""
    return Outbox("notices", attempt, PAUSES, attempts=TRIES, most=MOST)


def attempt(notice: Tell) -> Outcome:
    """Try to send a notice in a process of its own, and wait until that process ends."""
    address = resolve(notice.to, os.environ)
    if address is None:
        return Outcome(f"{shown(notice.to)} is not set where the scheduler runs", limit=1)
    return deliver(address, letters.title(notice), letters.body(notice), letters.MARKS[notice.kind])


def deliver(address: str, title: str, body: str, mark: str) -> Outcome:
    """Try to send a message in a process of its own, and wait until that process ends.

    ``mark`` is the type of the message in Apprise.
    """
    request = {"address": address, "title": title, "body": body, "mark": mark}
    return try_in_process(send.__name__, request, send.TIMEOUT, "the service")
