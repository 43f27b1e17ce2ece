"""A fork server: a process that has imported what workers or trainers need, and forks them.

Theory of operation. A worker that is started as a new program spends half a second on imports. A
trainer spends some seconds: torch takes two, and what torch imports at an optimiser's first step
takes two more. A fork server does the imports once, and then forks a worker or a trainer at each
request:

- *By two forks*, and the process between the two ends at once. So the new process loses its parent,
  and is adopted by the process that asked, which is a subreaper. It is a child of that process in
  every respect, and outlives the fork server.
- *Only if that is safe*: with one thread, and no GPU opened.
- *Under arguments and variables of its own* (``forking.show``), and in a session of its own. It is
  bound to its own cores before any of its code starts threads.

Its socket (``channel``) brings requests. ``{"import": name}`` is answered by ``{"importing":
name}`` if there is something to import, and then by ``{"imported": name}``, or by ``{"failed":
name}`` or ``{"spoilt": name}`` with a reason. ``{"fork": ..., "cores"}`` comes with the new
process's descriptors. The answer is ``{"pid"}``, or ``{"refused": reason}``: then the client may
start a new program instead. The fork server sends ``{"up": true}`` when it has started, and ends
when the other end closes.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...base.importing import importing
from ...wire.channel import Channel
from .forking import fork_twice, unsafe
from .lifeline import ending_with_us

log = logging.getLogger(__name__)

#: Function that turns the forked process into the requested one. It gets the request's message and
#: its descriptors. When it returns, the process ends.
Become = Callable[[Mapping[str, Any], Sequence[int]], None]


class Spoilt(Exception):
    """An import that keeps this process from forking. The text says why."""


class Server:
    """The fork server itself: answers one request after another."""

    def __init__(
        self,
        channel: Channel,
        become: Become,
        load: Callable[[str], None],
        ahead: Sequence[str] = (),
    ) -> None:
        """Serve ``channel``. ``load`` imports a name, and raises import errors or ``Spoilt``.

        ``ahead`` are names to import while no request waits, before a client asks for them.
        """
        self._channel = channel
        self._become = become
        self._load = load
        self._ahead = [*ahead]
        self._imported: set[str] = set()

    def serve(self) -> None:
        """Answer requests until the other end of the socket has closed."""
        # Ctrl-C in the terminal, and a SIGTERM that drains a whole process group, are for other
        # processes.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._channel.send({"up": True})
        while True:
            if self._ahead and not self._channel.hears(0.0):
                self._import(self._ahead.pop(0))
                continue
            request, descriptors = self._channel.receive()
            try:
                if "fork" in request:
                    self._fork(request, descriptors)
                elif request:
                    self._import(request["import"])
                else:
                    return
            finally:
                for fd in descriptors:
                    os.close(fd)

    def _import(self, name: str) -> None:
        if name not in self._imported:
            self._channel.send({"importing": name})
            try:
                with importing():
                    self._load(name)
            except Spoilt as spoilt:
                self._channel.send({"spoilt": name, "reason": str(spoilt)})
                return
            except BaseException as error:  # whatever a library raises
                self._channel.send({"failed": name, "reason": f"{type(error).__name__}: {error}"})
                return
            self._imported.add(name)
            # The pages of what is imported stay shared with the forked processes.
            gc.collect()
            gc.freeze()
        self._channel.send({"imported": name})

    def _fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        refusal = unsafe()
        if not refusal:
            try:
                pid = fork_twice()
            except OSError as error:
                refusal = str(error)
            else:
                if pid == 0:
                    self._be_forked(request, descriptors)
                self._channel.send({"pid": pid})
        if refusal:
            self._channel.send({"refused": refusal})

    def _be_forked(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        with ending_with_us():
            self._channel.close()
            os.setsid()
            with suppress(OSError):  # a container may not have these cores
                os.sched_setaffinity(0, request["cores"])
            self._become(request["fork"], descriptors)
        os._exit(0)


class Gone(Exception):
    """The fork server does not run, or not correctly. The text says why."""


class Silent(Gone):
    """The fork server runs, but does not answer in time."""


class Refused(Exception):
    """The fork server may not fork. The text says why."""


class Client:
    """The other end of a fork server's socket."""

    def __init__(
        self,
        channel: Channel,
        forked: str,
        *,
        heard: Callable[[dict[str, Any]], None] = lambda said: None,
    ) -> None:
        """Wrap ``channel``; ``forked`` names the server's processes in words, for messages.

        ``heard`` is called with each message of the server.
        """
        self._channel = channel
        self._forked = forked
        self._heard = heard
        self._refused = ""

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a request. Raises ``Gone``."""
        try:
            self._channel.send(request, descriptors)
        except OSError as error:
            raise Gone(str(error)) from error

    def next(self, timeout: float) -> dict[str, Any]:
        """Return the server's next message; empty if none arrives in time. Raises ``Gone``."""
        try:
            line = self._channel.line(timeout)
        except (EOFError, OSError) as error:
            raise Gone("it has ended") from error
        if line is None:
            return {}
        message: dict[str, Any] = json.loads(line)
        self._heard(message)
        return message

    def until(self, deadline: float, **fields: str | None) -> dict[str, Any]:
        """Return the server's next message that has one of ``fields``.

        The field must have the given value, unless that is None. Raises ``Gone``, and ``Silent`` at
        the ``deadline`` (monotonic seconds).
        """
        while message := self.next(max(0.0, deadline - time.monotonic())):
            for name, value in fields.items():
                if name in message and value in (None, message[name]):
                    return message
        raise Silent("it does not answer")

    def fork(
        self,
        told: Mapping[str, Any],
        cores: Sequence[int],
        descriptors: Sequence[int],
        timeout: float,
    ) -> int:
        """Have the server fork a process that loses its parent; return its process id.

        ``told`` tells the process what to become. The process is bound to ``cores``, and gets the
        ``descriptors``. Raises ``Refused`` if the server may not fork, and logs each new reason.
        Raises ``Gone`` if the server has ended or does not answer within ``timeout`` seconds.
        """
        self.ask({"fork": told, "cores": [*cores]}, descriptors)
        answer = self.until(time.monotonic() + timeout, pid=None, refused=None)
        if "pid" in answer:
            return int(answer["pid"])
        why = str(answer["refused"])
        if why != self._refused:
            self._refused = why
            log.warning("%s are started as new programs: %s", self._forked, why)
        raise Refused(why)

    def close(self) -> None:
        """Close the socket, which ends the fork server. Its forked processes continue."""
        self._channel.close()
