"""The socket between workers and the launcher process: lines of JSON, some with descriptors.

It lies in the run folder, which is its owner's alone: who can connect may start programs. A path
may be longer than a socket's address can be, so the folder is named by an open descriptor.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAME = "launcher.socket"
_FDS = 3  # a trainer's socket to its worker, its listening socket, its log


def listen(run: Path) -> socket.socket:
    """The listening socket in the folder ``run``. Raises OSError."""
    (run / NAME).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    with _address(run) as address:
        listening.bind(address)
    listening.listen(64)
    return listening


def connect(run: Path) -> socket.socket:
    """A connection to who listens in the folder ``run``. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _address(run) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


@contextmanager
def _address(run: Path) -> Iterator[str]:
    folder = os.open(run, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{NAME}"
    finally:
        os.close(folder)


def send(
    connection: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send one message. Raises OSError."""
    line = json.dumps(message).encode() + b"\n"
    sent = socket.send_fds(connection, [line], descriptors)
    if sent < len(line):  # to send nothing is an error where the other side has closed
        connection.sendall(line[sent:])


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message and its descriptors; none if the other side has closed or is silent.

    Each side sends one message and waits for the other's, so nothing follows it.
    """
    line, descriptors = b"", array.array("i")
    with suppress(ConnectionError, TimeoutError):
        while not line.endswith(b"\n"):
            part, received, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(_FDS * 4))
            for _, _, data in received:
                descriptors.frombytes(data)
            if not part:
                break
            line += part
    return json.loads(line) if line.endswith(b"\n") else {}, list(descriptors)
