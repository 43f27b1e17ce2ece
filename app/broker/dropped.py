"""Drop unusable data from the broker: log a bounded number of times, and count.

The process that drops something counts it in a hash on the broker, by its location and by the check
that it failed. So the count outlives the process, and ``penstock doctor`` and ``penstock metrics``
read it there.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Sequence
from typing import get_args

import redis

from ...wire.messages import Check, Forged
from . import connection, protocol

log = logging.getLogger(__name__)

#: The number of dropped items of one kind that are logged one by one. After that, a line is logged
#: each time that their number doubles.
EACH_SAID = 50
#: The most characters of a reason or a name in the log, since it may quote what was sent.
MAX_LOGGED = 300
_CHECKS = get_args(Check)
_COUNT = re.compile("[0-9]{1,18}")


class Dropped:
    """Record of what this process has dropped. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._uncounted: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note(self, location: str, where: str, why: Forged) -> None:
        """Note that the item ``where`` (an entry's id, say) at ``location`` was dropped."""
        with self._lock:
            self._uncounted[f"{location} {why.check}"] += 1
            self._counts[location, why.check] += 1
            n = self._counts[location, why.check]
        source = f"of {location} ({why.check})"
        if n <= EACH_SAID:
            log.warning("dropped %s %s: %s", _cut(where), source, _cut(str(why)))
        elif n.bit_count() == 1:
            log.warning("dropped %d %s so far, most recently %s", n, source, _cut(where))

    def remove_misplaced(self, client: redis.Redis, also: Sequence[str] = ()) -> None:
        """Remove values whose types their keys should not have, and count these values."""
        for words in protocol.remove_misplaced(client, also):
            self.note("keys", "a value", Forged("type", words))

    def counts(self) -> list[protocol.Command]:
        """Return the commands that count the noted items not counted yet."""
        with self._lock:
            return [("HINCRBY", protocol.DROPPED, *each) for each in self._uncounted.items()]

    def sent(self, counts: Sequence[protocol.Command]) -> None:
        """Forget ``counts``, which the broker has carried out."""
        with self._lock:
            self._uncounted -= Counter({str(field): int(n) for _, _, field, n in counts})

    def count(self, client: redis.Redis) -> None:
        """Count now if the broker accepts the commands, otherwise at the next call."""
        counts = self.counts()
        try:
            answers = protocol.execute(client, counts)
        except redis.RedisError as error:
            answers = [error]
        if any(isinstance(answer, redis.RedisError) for answer in answers):
            log.debug("what was dropped is not counted yet: %s", answers)
        else:
            self.sent(counts)


def counted(client: redis.Redis, url: str) -> dict[tuple[str, str], int]:
    """Return the number of dropped messages by (location, check).

    Raises BackendError if the broker does not answer.
    """
    with connection.translate_errors(url):
        try:
            fields: dict[str, str] = protocol.command(client, "HGETALL", protocol.DROPPED)
        except redis.ResponseError as error:
            if not connection.is_wrong_type(error):
                raise
            return {}  # the next scheduler removes it
    counts = {}
    for field, n in fields.items():
        location, _, check = field.partition(" ")
        # Anybody may have written there. Only Penstock's own counts are shown.
        if location in protocol.LOCATIONS and check in _CHECKS and _COUNT.fullmatch(n):
            counts[location, check] = int(n)
    return counts


def _cut(text: str) -> str:
    escaped = ascii(text[: MAX_LOGGED + 1])[1:-1]
    return escaped if len(escaped) <= MAX_LOGGED else f"{escaped[:MAX_LOGGED]}…"
