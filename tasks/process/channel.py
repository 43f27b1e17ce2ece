"""Messages between processes of one machine: lines of JSON over a socket, some with descriptors."""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

_PART = 1 << 16
#: The most descriptors that come with one message: a process's standard input or its socket, a
#: listening socket or a lock, and its log.
_DESCRIPTORS = 3
#: The kernel's ``struct ucred``: process, user, group.
_UCRED = struct.Struct("iII")


class Channel:
    """One end of a stream socket. One thread at a time may use it, but for ``hang_up``."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._received = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def limit(self, seconds: float) -> None:
        """Let ``send`` fail, and ``receive`` return nothing, after ``seconds`` of silence."""
        self._socket.settimeout(seconds)

    @property
    def peer(self) -> int:
        """The process id of who made the other end, by the kernel's word."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid: int = _UCRED.unpack(credentials)[0]
        return pid

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one message. Raises OSError."""
        line = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(self._socket, [line], descriptors)
        if sent < len(line):  # to send nothing is an error where the other end has closed
            self._socket.sendall(line[sent:])

    def hears(self, timeout: float | None, *others: int) -> bool:
        """Return whether something comes, or the other end closes, within ``timeout`` seconds.

        It is True as well once one of the descriptors ``others`` is readable. None: wait for ever.
        """
        if self._received:
            return True
        poll = select.poll()
        for fd in (self._socket.fileno(), *others):
            poll.register(fd, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Return the next message and its descriptors.

        The message is empty if the other end has closed, or is silent for longer than ``limit``.
        """
        descriptors: list[int] = []
        with suppress(ConnectionError, TimeoutError):
            while b"\n" not in self._received:
                part, received, _, _ = socket.recv_fds(self._socket, _PART, _DESCRIPTORS)
                descriptors += received
                if not part:
                    break
                self._received += part
        if b"\n" not in self._received:
            return {}, descriptors
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line), descriptors

    def hang_up(self) -> None:
        """Close the connection for both ends. Whoever waits in ``receive`` returns."""
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
