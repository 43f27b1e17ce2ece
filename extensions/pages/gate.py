"""Admits only requests with the token that come from our pages, and restricts what pages may load.

Theory of operation. The pages show and control studies, and any web page in the same browser can
send requests to this machine. So there are four rules. First, the ``Host`` of a request must be a
name of this machine or of the proxy. A web page whose own name was pointed to this machine (DNS
rebinding) has another host. Second, the request must have the token, which is in the printed
address. Later requests have a cookie instead, which scripts cannot read and which requests from
other sites do not carry. Third, a request that changes something must be a POST whose ``Origin`` is
our own. Fourth, each response has a policy by which its page may load and run only content from
this server.

A browser separates cookies by host and path, not by port. So servers of other programs and users at
other ports of this machine get our cookies, too. Therefore all pages are in one folder whose name
is a secret of this server, and the cookie is sent only to that folder. The cookie does not contain
the token but the name of a session, which is of no use elsewhere and ends with the server.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...app.server.optuna_bridge.dashboard import is_ours
from ...base.errors import UsageError

#: The SHA-256 of an empty style element. plotly.js adds its rules to such an element.
_EMPTY = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
#: The content security policy of our pages. Style attributes set the colours of trials and load
#: nothing.
POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {_EMPTY}; style-src-attr"
    " 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
#: The content security policy of a report, which has scripts of its own. The scripts run without an
#: origin, and so without our cookie.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval';"
    " style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # A form's request has no Origin under "no-referrer".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
READING = ("GET", "HEAD")
COOKIE = "penstock"
#: The key under which the state of a request's scope has the connection
#: (``web_server.Connection``).
CONNECTION = "penstock.connection"


@dataclass(frozen=True, slots=True)
class Proxy:
    """The address at which a proxy shows the pages, split into origin and path.

    Both are empty if there is no proxy. The path has no slash at its end.
    """

    origin: str = ""
    path: str = ""

    @classmethod
    def of(cls, url: str) -> Proxy:
        """Return the proxy at ``url``.

        Raises UsageError if ``url`` is not the address of a web page.
        """
        allowed = "an address as https://example.org/penstock"
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except ValueError:
            raise UsageError.refuse("--proxy", url, allowed) from None
        clean = not (parts.query or parts.fragment or "@" in parts.netloc)
        if parts.scheme not in ("http", "https") or not host or not clean or not url.isascii():
            raise UsageError.refuse("--proxy", url, allowed)
        return cls(f"{parts.scheme}://{parts.netloc}".lower(), parts.path.rstrip("/"))

    @property
    def host(self) -> str:
        """The name of the proxy's host, with its port if the address has one."""
        return self.origin.partition("://")[2]


class Gate:
    """ASGI middleware that admits only browsers with the token, directly or through a proxy."""

    def __init__(self, app: ASGIApp, token: str, proxy: Proxy) -> None:
        self._app = app
        self._token = token
        self._proxy = proxy
        self._session = secrets.token_urlsafe(32)
        #: The folder of all pages, which follows the proxy's path in an address. Its name is a
        #: secret.
        self._folder = f"/{secrets.token_urlsafe(16)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application if it is admitted, or else answer with a refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope, is_inside = self._without_folder(self._without_prefix(scope))

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", POLICY)
                headers.setdefault("Cache-Control", "no-store")
                headers.update(_HEADERS)
            await send(message)

        refusal = self._refusal(scope, is_inside=is_inside)
        if refusal is None and (connection := scope.get("state", {}).get(CONNECTION)) is not None:
            connection.let_in()
        await (self._app if refusal is None else refusal)(scope, receive, guarded)

    def _without_prefix(self, scope: Scope) -> Scope:
        """Return ``scope`` without the proxy's path. Some proxies remove this path themselves."""
        path, prefix = scope["path"], self._proxy.path
        if prefix and path.startswith(f"{prefix}/"):
            return {**scope, "path": path[len(prefix) :]}
        return scope

    def _without_folder(self, scope: Scope) -> tuple[Scope, bool]:
        """Return ``scope`` relative to the pages' folder, and True if its path is in the folder."""
        path = scope["path"]
        if not secrets.compare_digest(
            path[: len(self._folder) + 1].encode(), f"{self._folder}/".encode()
        ):
            return scope, False
        return {**scope, "path": path[len(self._folder) :]}, True

    def _refusal(self, scope: Scope, *, is_inside: bool) -> Response | None:
        """Return the response that refuses or redirects a request; None if it is admitted."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if not is_ours(host) and (not self._proxy.host or host != self._proxy.host):
            return _words(400, "This page answers only to its own address, as it was printed.")
        if self._proxy.path and scope["path"] == self._proxy.path:
            query = scope["query_string"].decode("latin-1")
            return RedirectResponse(f"{self._proxy.path}/?{query}", 307)  # links are relative
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if scope["method"] in READING and (tokens := query.pop("token", [])):
            return self._enter(scope, tokens[0], query, is_inside=is_inside)
        session = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        if not (is_inside and secrets.compare_digest(session.encode(), self._session.encode())):
            return _words(
                401, "Open the address that <code>penstock ui</code> has printed: it lets you in."
            )
        if scope["method"] not in READING and not self._is_own(headers, host):
            return _words(403, "This request does not come from this page.")
        return None

    def _enter(
        self, scope: Scope, offered_token: str, query: dict[str, list[str]], *, is_inside: bool
    ) -> Response:
        """Set the session's cookie, and redirect to the same page without the token.

        A wrong token is refused.
        """
        if not secrets.compare_digest(offered_token.encode(), self._token.encode()):
            return _words(
                403, "This token is not the one that was printed: the server has a new one."
            )
        rest = urlencode(query, doseq=True)
        # Relative, since only the browser knows the path before it.
        folder = "." if is_inside else f".{self._folder}"
        page = f"{folder}/{scope['path'].rpartition('/')[2]}"
        response = RedirectResponse(f"{page}?{rest}" if rest else page, 303)
        response.set_cookie(
            COOKIE,
            self._session,
            path=f"{self._proxy.path}{self._folder}",
            secure=self._proxy.origin.startswith("https://"),
            httponly=True,
            samesite="strict",
        )
        return response

    def _is_own(self, headers: Headers, host: str) -> bool:
        """Return True if one of our pages sent the request, from ``host`` or through the proxy."""
        origin = headers.get("origin", "").lower()
        return origin == f"http://{host}" or (bool(origin) and origin == self._proxy.origin)


def _words(status: int, markup: str) -> Response:
    text = f"<!doctype html><html lang=en><title>Penstock</title><p>{markup}</p>"
    return HTMLResponse(text, status)
