"""The address of the launcher process: a socket in the run folder.

Anyone who can connect to the socket may start programs, so only the folder's owner may read the
folder. The path of the folder may be longer than a socket's address can be. So the address names
the folder by an open descriptor.
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
    """Return a socket that listens in the folder ``run``. Raises OSError."""
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
