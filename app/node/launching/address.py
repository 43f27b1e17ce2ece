"""The address of the launcher process: a socket in the run folder.

Only its owner can read the folder, since anyone who can connect may start programs. A path may be
longer than a socket's address can be, so the folder is named by an open descriptor.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....wire.channel import Channel

NAME = "launcher.socket"


def listen(run: Path) -> socket.socket:
    """Return the listening socket in the folder ``run``. Raises OSError."""
    (run / NAME).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    with _address(run) as address:
        listening.bind(address)
    listening.listen(64)
    return listening


def connect(run: Path) -> Channel:
    """Return a connection to the process that listens in the folder ``run``. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _address(run) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return Channel(connection)


@contextmanager
def _address(run: Path) -> Iterator[str]:
    folder = os.open(run, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{NAME}"
    finally:
        os.close(folder)
