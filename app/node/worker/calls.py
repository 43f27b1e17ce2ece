"""A thread of the worker that learns at once if a segment must be cut or is fenced off.

The answers to the worker's beats (renewals of its leases) say so, too. But beats are a third of a
lease apart, and until the next beat a trial would go on training, for example after its user has
stopped it. If the broker's calls cannot be received, only the beats tell.
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

#: Seconds without a message after which the connection is tested.
QUIET = 60.0
#: The pauses, in seconds, between attempts to connect while the broker does not answer.
RESTS = Backoff(first=0.5, longest=30.0)


class Calls(threading.Thread):
    """A thread that passes on the broker's calls. A call is the key of an attempt."""

    def __init__(self, url: str, called: Callable[[str], None]) -> None:
        super().__init__(name="calls", daemon=True)
        self._url = url
        self._called = called
        self._over = threading.Event()

    def stop(self) -> None:
        """Stop passing on calls.

        The method does not wait for the thread, which may wait for the broker.
        """
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
            except Exception:  # a worker without this thread still learns all from its beats
                failures += 1
                log.exception("the calls of the broker cannot be heard")
            self._over.wait(RESTS.after(failures))

    def _hear(self, channel: Any) -> None:
        message = channel.get_message(timeout=QUIET)
        if message is None:
            channel.ping()  # the broker's answer is a message, too
        elif message["type"] == "message":
            self._called(str(message["data"]))
