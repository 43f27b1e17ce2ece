"""The pages as a Starlette application: the page at each address, and how errors are shown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ...base.errors import PenstockError, UsageError
from ..report.report import report_text
from .actions import carry_out
from .compare import compare_page
from .devices import devices_page
from .follower import Follower, Picture, Pictures
from .frame import Content, Page, asset, begun, ended
from .gate import REPORT_POLICY
from .pieces import part
from .plan import plan_page
from .site import Site
from .studies import studies_page
from .study import memory_page, study_page
from .trials import trial_page, trials_page

if TYPE_CHECKING:
    from starlette.requests import Request

    from ...app.host.settings import Settings
    from ...app.ledger.reader import Reader

log = logging.getLogger(__name__)

#: The address of the table of trials, which a study's page loads when the user sorts or filters it.
TABLE = "trials"
#: The functions that return the pages, by the last part of the address.
PAGES: dict[str, Callable[[Site, Mapping[str, str]], Page]] = {
    "": studies_page,
    "study": study_page,
    TABLE: trials_page,
    "compare": compare_page,
    "trial": trial_page,
    "memory": memory_page,
    "devices": devices_page,
    "plan": plan_page,
}
#: The header with which an open page asks for its new content after a change.
LIVE = "x-penstock-live"
UNEXPECTED = "This is a bug in Penstock: the traceback is in the terminal of penstock ui."
#: The most bytes that the body of a form's request may have.
FORM_BYTES = 1 << 20


def application(settings: Settings, reader: Reader) -> Starlette:
    """Return the web application for the installation of ``settings``.

    Requests are not checked here. ``Gate`` must be put around the application for that.
    """
    site = Site(settings, reader)
    follower = Follower(reader, site.scheduler, site.shares.has_news)
    pictures = Pictures(follower)

    async def show(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        query, address = _query(request), f"{name}?{request.query_params}"
        try:
            if LIVE in request.headers:
                content = await pictures.live(address, partial(_content, site, name, query))
                return HTMLResponse(content.beginning + content.rest)
            asked_at = time.monotonic()
            page, beginning = await run_in_threadpool(_begun, site, name, query)
        except PenstockError as error:
            status = 404 if isinstance(error, UsageError) else 503
            return _message("It cannot be shown", error, status)
        draw = partial(
            pictures.picture,
            address,
            lambda: (beginning, ended(page.draw())),
            asked_at,
            rests=name != TABLE,
        )
        return StreamingResponse(_parts(beginning, draw), media_type="text/html")

    def report(request: Request) -> Response:
        try:
            study = reader.study(request.query_params.get("id", ""))
            text = report_text(reader, study.id)
        except PenstockError as error:
            return _message("It cannot be shown", error, 404)
        return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})

    async def act(request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES:
                return PlainTextResponse("The form is too long.", 413)
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        try:
            words = await run_in_threadpool(carry_out, site, fields)
        except PenstockError as error:
            status = 422 if isinstance(error, UsageError) else 503
            return _message("It was not done", error, status)
        follower.hurry()
        return _message("Done", words, 200)

    async def events(request: Request) -> Response:
        newest = request.query_params.get("seen", "")
        number = int(newest) if newest.isascii() and newest.isdecimal() and len(newest) < 20 else 0
        # A proxy that buffers would hold the events back.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            follower.messages(number), media_type="text/event-stream", headers=headers
        )

    def file(request: Request) -> Response:
        content = asset(request.path_params["name"])
        if content is None:
            return _message("It cannot be shown", "There is no such page here.", 404)
        # Its address changes with its content.
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return Response(content[0], media_type=content[1], headers=headers)

    def unexpected(request: Request, error: Exception) -> Response:
        log.error("%s could not be answered", request.url.path, exc_info=error)
        return _message("It cannot be shown", UNEXPECTED, 500)

    @asynccontextmanager
    async def following(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(follower.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    routes = [
        *(Route(f"/{name}", show) for name in PAGES),
        Route("/report", report),
        Route("/events", events),
        Route("/act", act, methods=["POST"]),
        Route("/{name}", file),
    ]
    return Starlette(routes=routes, lifespan=following, exception_handlers={Exception: unexpected})


def _query(request: Request) -> dict[str, str]:
    """Return the fields of a page's query. Values of a repeated field are joined, as ``3,7``."""
    params = request.query_params
    return {name: ",".join(params.getlist(name)) for name in params}


def _begun(site: Site, name: str, query: Mapping[str, str]) -> tuple[Page, str]:
    """Return a page, and its HTML up to the main part.

    Raises the errors of the function that returns the page.
    """
    newest = site.newest()  # read first: what comes meanwhile is announced
    page = PAGES[name](site, query)
    return page, begun(page, name or "./", newest)


def _parts(beginning: str, draw: Callable[[], Picture]) -> Iterator[str | bytes]:
    """Yield a page's beginning at once, and the rest when it is drawn, which may take a second.

    Errors while the rest is drawn are shown in the page, since the status of the response is
    already sent.
    """
    yield beginning
    try:
        yield draw().rest
    except PenstockError as error:
        yield ended(Content(_said(error)))
    except Exception:
        log.exception("a page could not be drawn")
        yield ended(Content(_said(UNEXPECTED)))


def _content(site: Site, name: str, query: Mapping[str, str]) -> tuple[str, str]:
    page, beginning = _begun(site, name, query)
    return beginning, ended(page.draw())


def _said(words: object) -> Markup:
    return part("said.html", words=words)


def _message(title: str, words: object, status: int) -> Response:
    """Return a response whose page shows ``words`` under the heading ``title``."""
    page = Page(
        title, Markup("<h1>{}</h1>").format(title), lambda: Content(_said(words)), topics=()
    )
    return HTMLResponse(begun(page, "", 0) + ended(page.draw()), status)
