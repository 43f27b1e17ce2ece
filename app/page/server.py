"""Serves the pages on this machine's loopback, to who has the token that is printed."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from ...profiling.base.errors import UsageError
from ..optuna_bridge.dashboard import ADDRESS
from .application import application
from .gate import Gate, Proxy

if TYPE_CHECKING:
    from ..host.settings import Settings
    from ..ledger.reader import Reader

#: Seconds that open pages have to be told of the end.
GRACE = 1


def serve(
    settings: Settings,
    reader: Reader,
    port: int,
    proxy: str | None,
    tell: Callable[[str], object],
) -> None:
    """Serve until SIGINT or SIGTERM; ``tell`` gets the address to open. ``port`` 0: a free one.

    ``proxy`` is the address at which a proxy shows it. Raises UsageError if that is none, or the
    port is taken.
    """
    shown = Proxy() if proxy is None else Proxy.of(proxy)
    try:
        listening = socket.create_server((ADDRESS, port))
    except OSError as error:
        raise UsageError.refuse("--port", port, f"a free port ({error.strerror})") from error
    with listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(32)
        gate = Gate(application(settings, reader), token, port, shown)
        config = uvicorn.Config(
            gate,
            ws="none",
            log_config=None,
            log_level="critical",  # what goes wrong in a page, the application says itself
            access_log=False,  # the printed address holds the token
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
        )
        tell(f"{shown.origin or f'http://{ADDRESS}:{port}'}{shown.path}/?token={token}")
        uvicorn.Server(config).run(sockets=[listening])
