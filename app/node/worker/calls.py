"""The thread of a worker that hears at once that a segment of it is cut or fenced off.

A beat says so, too, but beats are a third of a lease apart: a trial that its user stops, or that
gives way, would train on meanwhile. Where the broker cannot call, beats are all there is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import redis

from ....base.backoff import Backoff
from ...broker import connection, protocol

log = logging.getLogger(__name__)

#: Seconds after which a connection on which nothing was heard is tried.
QUIET = 60.0
#: Seconds until the broker is asked again that does not answer.
RESTS = Backoff(first=0.5, longest=30.0)


class Calls(threading.Thread):
    """Tells ``called`` the key of each attempt that a worker is called about."""

    def __init__(self, url: str, called: Callable[[str], None]) -> None:
        super().__init__(name="calls", daemon=True)
        self._url = url
        self._called = called
        self._over = threading.Event()

    def stop(self) -> None:
        """Hear nothing more. Does not wait: the thread may be waiting for the broker."""
        self._over.set()

    def run(self) -> None:
        failures = 0
        while not self._over.is_set():
            try:
                client: Any = connection.connect(self._url)  # its pubsub has no types
                with client.pubsub() as channel:
                    channel.subscribe(protocol.CALLS)
                    while not self._over.is_set():
                        self._hear(channel)
                        failures = 0
            except (redis.RedisError, OSError) as error:
                failures += 1
                log.debug("no calls are heard: %s", error)
            except Exception:  # a worker without this thread hears all with its beats
                failures += 1
                log.exception("the calls of the broker cannot be heard")
            self._over.wait(RESTS.after(failures))

    def _hear(self, channel: Any) -> None:
        message = channel.get_message(timeout=QUIET)
        if message is None:
            channel.ping()  # its answer is a message, too
        elif message["type"] == "message":
            self._called(str(message["data"]))
