"""A worker's thread that hears at once if one of its segments is to be cut or is fenced off.

A beat's answer says so, too, but beats are a third of a lease apart: a trial that its user stops,
or that gives way to another, would train on meanwhile. If the broker cannot call, only beats tell.
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

#: Seconds of silence after which the connection is tested.
QUIET = 60.0
#: The pauses before another try if the broker does not answer.
RESTS = Backoff(first=0.5, longest=30.0)


class Calls(threading.Thread):
    """Calls ``called`` with the key of each attempt about which the broker calls the worker."""

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
