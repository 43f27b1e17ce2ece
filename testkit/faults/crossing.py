"""Forwards a Unix socket to another one, and can cut off single processes.

What a process sends while it is cut off is not lost. It arrives late, as in a network that
recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

#: Seconds between two looks at whether a process is still cut off.
LOOK = 0.01


class Crossing(threading.Thread):
    """Passes on whatever comes to the socket at ``path`` to the one at ``target``, and back."""

    def __init__(self, path: Path, target: Path) -> None:
        super().__init__(name="crossing", daemon=True)
        self._path = path
        self._target = target
        self._cut_off: set[int] = set()
        self._listens = threading.Event()

    def start(self) -> None:
        super().start()
        self._listens.wait()

    @contextlib.contextmanager
    def cut_off(self, pid: int) -> Iterator[None]:
        """Pass nothing from or to the process in the block, over old or new connections."""
        self._cut_off.add(pid)
        try:
            yield
        finally:
            self._cut_off.discard(pid)

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._pass_on, self._path)
        self._listens.set()
        await server.serve_forever()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        credentials = writer.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        pid = struct.unpack("3i", credentials)[0]
        with contextlib.suppress(OSError), contextlib.closing(writer):
            there, back = await asyncio.open_unix_connection(self._target)
            with contextlib.closing(back):
                ways = [self._pump(pid, reader, back), self._pump(pid, there, writer)]
                tasks = [asyncio.create_task(way) for way in ways]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, pid: int, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            while pid in self._cut_off:
                await asyncio.sleep(LOOK)
            to.write(data)
            await to.drain()
