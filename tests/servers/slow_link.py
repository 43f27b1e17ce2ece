"""A TCP proxy that delivers every byte later than it came, as a long way does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import urlsplit


@contextmanager
def far_away(url: str, delay: float) -> Iterator[str]:
    """The URL of a way to ``url`` on which all that is sent takes ``delay`` seconds each way."""
    parts = urlsplit(url)
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _closing(writer):
            there, back = await asyncio.open_connection(parts.hostname, parts.port)
            async with _closing(back):
                await asyncio.gather(_deliver(reader, back, delay), _deliver(there, writer, delay))

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop.create_task(serve(reader, writer))  # noqa: RUF006 - the end waits for all tasks

    server = loop.run_until_complete(asyncio.start_server(begin, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, name="slow link", daemon=True)
    thread.start()
    try:
        yield parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}").geturl()
    finally:
        asyncio.run_coroutine_threadsafe(_close(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close the connection, also where its task is cancelled: left open it warns as garbage."""
    try:
        yield
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _deliver(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, delay: float
) -> None:
    """Pass on what ``source`` says. Bytes wait for their time, not for those before them."""
    loop = asyncio.get_running_loop()
    while data := await _read(source):
        loop.call_later(delay, target.write, data)
    await asyncio.sleep(delay)
    target.close()


async def _read(source: asyncio.StreamReader) -> bytes:
    try:
        return await source.read(1 << 16)
    except ConnectionError:
        return b""


async def _close(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
