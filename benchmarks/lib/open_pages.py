"""``penstock ui``, and open pages of it without a browser.

Each open page has a stream of events, and asks for itself again when told of a change, as the
script ``extensions/pages/page.js`` does in a browser.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

#: Seconds until a browser connects again, as the stream says.
RETRY = 1.0
#: The most bytes of a line of a stream.
LINE = 1 << 20


@dataclass(frozen=True)
class Served:
    """The pages of an installation: the address that lets in, the port, folder and cookie."""

    process: subprocess.Popen[str]
    url: str
    port: int
    folder: str
    cookie: str

    def at(self, path: str) -> str:
        """The address of a page."""
        return f"http://127.0.0.1:{self.port}{self.folder}{path}"


@contextmanager
def served(home: Path) -> Iterator[Served]:
    """``penstock ui`` for the installation in ``home``."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", "ui", "--port=0"],
        env={**os.environ, "PENSTOCK_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = process.stdout.readline().strip()
        port = urlsplit(url).port
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", f"/?{urlsplit(url).query}")
        answer = connection.getresponse()
        cookie = answer.getheader("set-cookie").partition(";")[0]
        folder = answer.getheader("location").removeprefix(".").rstrip("/")
        connection.close()
        yield Served(process, url, port, folder, cookie)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Return the body that follows an answer's head: of a known length, or in parts."""
    length = re.search(rb"content-length: (\d+)", head)
    if length is not None:
        return await reader.readexactly(int(length[1]))
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    return b"".join(parts)


@dataclass
class OpenPage:
    """One of them: what it was told and when, and what it shows."""

    path: str
    text: str = ""
    topics: frozenset[str] | None = frozenset()
    seen: int = 0
    #: When its stream began; 0 before.
    listens: float = 0.0
    #: When each message came (seconds since 1970), and the newest event that it tells of.
    told: list[tuple[float, int]] = field(default_factory=list)
    again: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, text: str) -> None:
        """Have this text from now on."""
        self.text, self.seen = text, int(re.search(r'data-seen="(\d+)"', text)[1])
        found = re.search(r'data-topics="([^"]*)"', text)
        self.topics = None if found is None else frozenset(json.loads(unescape(found[1])))

    def tell(self, number: int, topics: set[str]) -> None:
        """Take in a message: event ``number`` is the newest that it tells of."""
        self.told.append((time.time(), number))
        concern = topics if self.topics is None else topics & self.topics
        if "all" in topics or "time" in concern or (concern and number > self.seen):
            self.again.set()


class OpenPages:
    """Pages at ``paths``, open from ``with`` on in a thread of their own."""

    def __init__(self, server: Served, paths: Sequence[str]) -> None:
        self._server = server
        self.pages = [OpenPage(path) for path in paths]
        self._loop = asyncio.new_event_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = Thread(target=self._run)

    def __enter__(self) -> OpenPages:
        self._thread.start()
        while not all(page.listens for page in self.pages):
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._tasks:
            self._loop.call_soon_threadsafe(task.cancel)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._all())
        self._loop.close()

    async def _all(self) -> None:
        self._tasks = [asyncio.create_task(self._one(page)) for page in self.pages]
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _one(self, page: OpenPage) -> None:
        await self._draw(page, live=False)
        drawing = asyncio.create_task(self._redraw(page))
        try:
            while True:
                with suppress(OSError, asyncio.IncompleteReadError):
                    await self._listen(page)
                await asyncio.sleep(RETRY)
        finally:
            drawing.cancel()
            with suppress(asyncio.CancelledError):
                await drawing

    async def _redraw(self, page: OpenPage) -> None:
        while True:
            await page.again.wait()
            page.again.clear()
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._draw(page, live=True)

    async def _draw(self, page: OpenPage, *, live: bool) -> None:
        reader, writer = await self._ask(page.path, *(("X-Penstock-Live: 1",) if live else ()))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            text = (await _body(reader, head.lower())).decode()
        finally:
            writer.close()
        if head.startswith(b"HTTP/1.1 200"):
            page.show(text)

    async def _listen(self, page: OpenPage) -> None:
        reader, writer = await self._ask(f"/events?seen={page.seen}")
        number = 0
        try:
            while line := await reader.readline():
                if line.startswith(b"retry: "):
                    page.listens = time.time()
                elif line.startswith(b"id: "):
                    number = int(line[4:])
                elif line.startswith(b"data: "):
                    page.tell(number, set(json.loads(line[6:])))
        finally:
            writer.close()

    async def _ask(self, path: str, *headers: str):
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port, limit=LINE)
        lines = [
            f"GET {self._server.folder}{path} HTTP/1.1",
            f"Host: 127.0.0.1:{self._server.port}",
            f"Cookie: {self._server.cookie}",
            "Connection: close",
            *headers,
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()
        return reader, writer
