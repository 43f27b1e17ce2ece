"""Wait for the end of a study: a watcher is told at once, without frequent queries.

Theory of operation. The scheduler adds each study that ends to a short stream, once its end is in
the ledger. A watcher blocks on the stream between two looks at the ledger. The stream is no more
than a hint: if the broker does not answer, or the entry is lost, the next look finds the end.

If a script calls callbacks for a study's trials, trials that end are added to a second stream,
because the study's next trials wait for the callbacks (``Listening``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import redis

from . import connection, protocol

#: Seconds before a broker that did not answer is asked again.
REST = 5.0
_STREAMS = (protocol.ENDINGS, protocol.UNHEARD)
#: Seconds between two signs of life of a script, and milliseconds until a sign of life expires.
BEAT, ALIVE_MS = 1.0, 4000


class Listening(threading.Thread):
    """Context manager that shows the scheduler that a script lives and calls callbacks."""

    def __init__(self, url: str, study: Callable[[], str]) -> None:
        """``study`` returns the id of the study, which may change until the study is submitted."""
        super().__init__(name="listening", daemon=True)
        self._client = connection.connect(url)
        self._study = study
        self._over = threading.Event()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while True:
            key = protocol.script_key(self._study())
            with suppress(redis.RedisError):  # the broker is away: the next beat may reach it
                protocol.command(self._client, "SET", key, "1", "PX", ALIVE_MS)
            if self._over.wait(BEAT):
                return


class Endings:
    """Waits for the end of one study at the broker at ``url``. Connects on first use."""

    def __init__(self, url: str, study: str) -> None:
        self._client = connection.connect(url)
        self._study = study
        #: The id of the last entry read from each stream; empty before the first look.
        self._last_entries: dict[str, str] = {}
        self._rests_until = 0.0

    def begin(self) -> None:
        """Notice ends from now on. Without this call, ends count from the first ``wait`` on."""
        with suppress(redis.RedisError):  # then the first wait begins
            for key in _STREAMS:
                newest = protocol.command(self._client, "XREVRANGE", key, "+", "-", "COUNT", 1)
                self._last_entries.setdefault(key, str(newest[0][0]) if newest else "0")

    def wait(self, seconds: float) -> Sequence[str]:
        """Wait until the study or some trials end; return the ids of these trials in order.

        Only trials whose callbacks are due count. Waits at most ``seconds``. Never raises.
        """
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            if time.monotonic() < self._rests_until:
                time.sleep(remaining)
                break
            try:
                is_over, trials = self._next(remaining)
            except redis.RedisError:
                self._rests_until = time.monotonic() + REST
            else:
                if is_over or trials:
                    return trials
        return ()

    def _next(self, wait: float) -> tuple[bool, list[str]]:
        """Read the next entries; return True if the study ended, and the ids of ended trials."""
        if len(self._last_entries) < len(_STREAMS):
            self.begin()
        block = ("BLOCK", max(1, int(wait * 1000)))
        after = [self._last_entries.get(key, "$") for key in _STREAMS]
        streams = protocol.command(self._client, "XREAD", *block, "STREAMS", *_STREAMS, *after)
        is_over, trials = False, list[str]()
        for key, entries in protocol.by_stream(streams):
            for entry, raw in entries:
                self._last_entries[key] = entry
                fields = protocol.pairs(raw)
                if fields.get("s") == self._study:
                    is_over = is_over or key == protocol.ENDINGS
                    trials += [fields["t"]] if "t" in fields else []
        return is_over, trials
