"""Serves the pages on this machine's loopback address, to browsers that have the printed token.

Theory of operation. Any program that can connect may send half a request and wait, or connect again
and again. So a connection *waits* until one of its requests has passed the gate. Waiting
connections cost little: their number is limited, each may wait only for a short time, and if there
are too many, the connection that has waited longest is closed. A browser sends its request as soon
as it is connected, so the browser's connection passes before newer connections push it out.
Connections that have passed are counted separately, so waiting connections cannot displace them.
All connections come from this machine or its proxy, so there is no limit by address: an attacker
would have the same address as the users.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...app.server.optuna_bridge.dashboard import ADDRESS
from ...base.errors import UsageError
from .application import application
from .gate import CONNECTION, Gate, Proxy

if TYPE_CHECKING:
    from ...app.host.settings import Settings
    from ...app.ledger.reader import Reader

log = logging.getLogger(__name__)

#: Seconds that the server waits at its end for open pages to be told of the end.
GRACE = 1
#: Seconds in which a request of a new connection must pass the gate.
WAIT = 10.0
#: The most connections that wait, and the most that have passed. Their sum, with the process's open
#: files, stays below the usual limit of descriptors in a process (1,024).
MOST_WAITING, MOST_PASSED = 256, 400
#: The most bytes that the head of a request may have.
HEAD_BYTES = 16 << 10
#: The most connections that are accepted before surplus ones are closed, which is also the length
#: of the kernel's queue. If the queue were shorter than the number of tabs that reload at once,
#: some tabs would be delayed by seconds.
AT_ONCE = 128
#: Seconds between two log records of failures that do not concern a page.
QUIET = 60.0


class Door:
    """The connections of a server: those that wait, and those that have passed the gate.

    A connection passes the gate with its first request that is admitted.
    """

    def __init__(self) -> None:
        # Each in the order of its coming.
        self._waiting: dict[Connection, None] = {}
        self._passed: dict[Connection, None] = {}
        self._said = -QUIET

    def protocol(self, *, app_state: dict[str, Any], **arguments: Any) -> Connection:
        """Return the protocol for a new connection.

        The arguments are those of uvicorn's protocol.
        """
        return Connection(self, app_state, arguments)

    def come(self, connection: Connection) -> None:
        """Add a new connection to those that wait.

        If too many wait, close the one that has waited longest.
        """
        if len(self._waiting) >= MOST_WAITING:
            next(iter(self._waiting)).close()
        self._waiting[connection] = None

    def pass_(self, connection: Connection) -> None:
        """Move a connection from those that wait to those that have passed the gate.

        If too many have passed, close the one that passed first.
        """
        del self._waiting[connection]
        if len(self._passed) >= MOST_PASSED:
            next(iter(self._passed)).close()
        self._passed[connection] = None

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed or being closed."""
        self._waiting.pop(connection, None)
        self._passed.pop(connection, None)

    def say(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log a failure that does not concern a page, such as a failure to accept a connection.

        At most one failure is logged in ``QUIET`` seconds.
        """
        if time.monotonic() - self._said >= QUIET:
            self._said = time.monotonic()
            log.error(
                "penstock ui: %s: %r (what else fails within %g s is not said)",
                context["message"],
                context.get("exception"),
                QUIET,
            )


class Connection(asyncio.Protocol):
    """One connection to the server, whose HTTP uvicorn handles.

    The connection is closed if it sends no request with the right cookie in time.
    """

    def __init__(self, door: Door, app_state: dict[str, Any], arguments: dict[str, Any]) -> None:
        self._door = door
        self._http = H11Protocol(app_state={**app_state, CONNECTION: self}, **arguments)
        self._transport: asyncio.BaseTransport | None = None
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._late = asyncio.get_running_loop().call_later(WAIT, self.close)
        self._door.come(self)
        self._http.connection_made(transport)  # type: ignore[arg-type]  # a stream's, always

    def data_received(self, data: bytes) -> None:
        self._http.data_received(data)

    def eof_received(self) -> None:
        self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._http.connection_lost(exc)

    def let_in(self) -> None:
        """Note that a request of this connection has been admitted by the gate."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
            self._door.pass_(self)

    def close(self) -> None:
        """Close the connection at once. Data that is not sent yet is dropped."""
        self._forget()
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.abort()

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._door.leave(self)


def serve(
    settings: Settings,
    reader: Reader,
    port: int,
    proxy: str | None,
    tell: Callable[[str], object],
) -> None:
    """Serve the pages until SIGINT or SIGTERM, and call ``tell`` with the address to open.

    ``port`` 0 means any free port. ``proxy`` is the address at which a proxy shows the pages.
    Raises UsageError if ``proxy`` is not an address, or if the port is taken.
    """
    public = Proxy() if proxy is None else Proxy.of(proxy)
    try:
        listening = socket.create_server((ADDRESS, port))
    except OSError as error:
        raise UsageError.refuse("--port", port, f"a free port ({error.strerror})") from error
    with listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(32)
        door = Door()
        gate = Gate(application(settings, reader), token, public)
        config = uvicorn.Config(
            gate,
            http=door.protocol,  # type: ignore[arg-type]  # it is called as a class is
            ws="none",
            h11_max_incomplete_event_size=HEAD_BYTES,
            backlog=AT_ONCE,
            log_config=None,
            log_level="critical",  # what goes wrong in a page, the application says itself
            access_log=False,  # the printed address holds the token
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
        )
        tell(f"{public.origin or f'http://{ADDRESS}:{port}'}{public.path}/?token={token}")
        with asyncio.Runner() as runner:
            runner.get_loop().set_exception_handler(door.say)
            runner.run(uvicorn.Server(config).serve(sockets=[listening]))
