"""Run optuna-dashboard on the ledger, read-only and only for this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from ....base.errors import UsageError
from ....base.extras import need

if TYPE_CHECKING:
    from ...ledger.reader import Reader

ADDRESS = "127.0.0.1"
#: The host names that a browser on this machine uses. A request with any other name comes from a
#: web page whose own host name was pointed to this machine to read the studies (DNS rebinding).
HOSTS = (ADDRESS, "localhost", "::1")
READING = ("GET", "HEAD")
#: The answer that the dashboard shows to a user who presses a button that would write.
REFUSAL = json.dumps({"reason": "Penstock's studies are read-only here"}).encode()

WRONG_HOST = json.dumps(
    {"reason": f"the dashboard answers only to its own address: open http://{ADDRESS} at its port"}
).encode()

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


def serving(reader: Reader, port: int) -> WSGIServer:
    """Return a server for the dashboard at ``port`` of this machine (0 for any free port).

    The caller must call ``serve_forever``. Raises UsageError if optuna-dashboard is not installed
    or the port is taken.
    """
    need("optuna_dashboard", "penstock dashboard")
    import optuna_dashboard

    from .storage import LedgerStorage

    app = _guarded(optuna_dashboard.wsgi(LedgerStorage(reader)))
    try:
        return make_server(ADDRESS, port, app, _Server, _Handler)
    except OSError as error:
        raise UsageError.refuse("--port", port, f"a free port ({error.strerror})") from error


def _guarded(app: Application) -> Application:
    """Return ``app``, limited to requests that read and that name this machine as their host."""

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if not is_ours(environ.get("HTTP_HOST", "")):
            start("400 Bad Request", [("Content-Type", "application/json")])
            return [WRONG_HOST]
        if environ["REQUEST_METHOD"] in READING:
            return app(environ, start)
        start("405 Method Not Allowed", [("Content-Type", "application/json")])
        return [REFUSAL]

    return answer


def is_ours(host: str) -> bool:
    """Return True if a ``Host`` header, with or without a port, names this machine."""
    try:
        return urlsplit(f"//{host}").hostname in HOSTS and "@" not in host
    except ValueError:
        return False


class _Server(ThreadingMixIn, WSGIServer):
    """A server with one thread for each request, so that a large study delays no other request."""

    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Write nothing about a request to the terminal. optuna-dashboard itself writes errors."""
