"""Waiting for the end of a study: whoever watches it is told at once, and need not ask often.

Theory of operation. The scheduler adds each study that ends to a short stream, once its end is in
the ledger. A watcher blocks on the stream between two looks at the ledger. The stream is no more
than a hint: where the broker does not answer, or the entry is lost, the next look finds the end.
"""

from __future__ import annotations

import time

import redis

from . import connection, protocol

#: Seconds for which a broker that did not answer is not asked again.
REST = 5.0


class Endings:
    """Waits for the end of one study at the broker at ``url``. Connects on first use."""

    def __init__(self, url: str, study: str) -> None:
        self._client = connection.connect(url)
        self._study = study
        #: The last entry that was seen; None before the first look.
        self._seen: str | None = None
        self._rests_until = 0.0

    def wait(self, seconds: float) -> None:
        """Return when the study ends, at the latest after ``seconds``. Never raises.

        An end before the first call is not noticed.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if time.monotonic() < self._rests_until:
                time.sleep(left)
                return
            try:
                if self._is_over(left):
                    return
            except redis.RedisError:
                self._rests_until = time.monotonic() + REST

    def _is_over(self, wait: float) -> bool:
        """Whether the stream names the study within ``wait`` seconds, or before the next entry."""
        key = protocol.ENDINGS
        if self._seen is None:
            newest = protocol.command(self._client, "XREVRANGE", key, "+", "-", "COUNT", 1)
            self._seen = str(newest[0][0]) if newest else "0"
        block = max(1, int(wait * 1000))
        found = protocol.command(self._client, "XREAD", "BLOCK", block, "STREAMS", key, self._seen)
        entries = [entry for _, each in protocol.by_stream(found) for entry in each]
        if entries:
            self._seen = entries[-1][0]
        return any(protocol.pairs(fields).get("s") == self._study for _, fields in entries)
