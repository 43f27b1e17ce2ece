"""Messages between processes of one machine: lines of JSON over a socket, some with descriptors.

Workers, their trainers, fork servers and their clients exchange messages over such channels. The
kernel may deliver the descriptors of a message with the bytes of an earlier one, so each message
says how many descriptors are its own.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

#: The most descriptors that one message carries: a process's standard input or socket, a listening
#: socket or a lock, and the process's log.
_DESCRIPTORS = 3
_COUNT = "descriptors"
_PART = 1 << 16
#: The kernel's ``struct ucred``: process, user, group.
_UCRED = struct.Struct("iII")


class TooLong(ValueError):
    """Raised if a line exceeds the longest allowed message. ``args[0]`` is the received part."""


class Channel:
    """One end of a stream socket. One thread at a time may receive, and one may send."""

    def __init__(
        self,
        end: socket.socket,
        *,
        ended: int = -1,
        speaks: Callable[[int], bool] | None = None,
        longest: float = float("inf"),
    ) -> None:
        """Wrap ``end``, one end of a stream socket.

        ``ended`` is a descriptor that becomes readable when the process at the other end has ended,
        even if other processes hold the socket open. ``speaks`` returns True for the ids of
        processes that may send; messages of other processes are dropped. This needs SO_PASSCRED. If
        ``speaks`` is None, every process that holds the socket may send. ``longest``: the most
        bytes of a line.
        """
        self._socket = end
        self._speaks = speaks
        self._longest = longest
        self._received = b""
        #: Descriptors that arrived before their message was received.
        self._descriptors: list[int] = []
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self._may_end = ended >= 0
        if self._may_end:
            self._poll.register(ended, select.POLLIN)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def peer(self) -> int:
        """Return the id of the process that made the other end, as the kernel reports it."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid: int = _UCRED.unpack(credentials)[0]
        return pid

    def limit(self, seconds: float) -> None:
        """Let ``send`` fail, and ``receive`` return nothing, after ``seconds`` of silence."""
        self._socket.settimeout(seconds)

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one message. Raises OSError."""
        body = {**message, _COUNT: len(descriptors)} if descriptors else message
        line = json.dumps(body).encode() + b"\n"
        # To send nothing is an error where the other end has closed.
        n_sent = socket.send_fds(self._socket, [line], descriptors) if descriptors else 0
        if n_sent < len(line):
            self.send_line(line[n_sent:])

    def send_line(self, line: bytes) -> None:
        """Send a line of JSON, with its newline. Raises OSError."""
        self._socket.sendall(line)

    def hears(self, timeout: float | None) -> bool:
        """Return True if data or the end of the stream comes within ``timeout`` seconds.

        ``timeout``: None to wait without a limit.
        """
        return b"\n" in self._received or bool(self._ready(timeout))

    def _ready(self, timeout: float | None) -> list[int]:
        return [fd for fd, _ in self._poll.poll(None if timeout is None else timeout * 1000)]

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Return the next message and its descriptors.

        The message is empty if the other end has closed, or is silent for longer than ``limit``.
        """
        try:
            line = self.line(self._socket.gettimeout(), descriptors=True)
        except (EOFError, ConnectionError, TimeoutError):
            return {}, []
        message = json.loads(line or b"{}")
        count = message.pop(_COUNT, 0)
        descriptors, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        return message, descriptors

    def line(self, timeout: float | None, *, descriptors: bool = False) -> bytes | None:
        """Return the next line; None if nothing arrives for ``timeout`` seconds.

        Without ``descriptors``, arriving descriptors are dropped. Raises ``EOFError`` if the other
        end has closed or its process has ended, ``OSError``, and ``TooLong``.
        """
        while b"\n" not in self._received:
            has_data = True  # or soon: receiving waits for it
            if timeout is not None or self._may_end:
                if not (ready := self._ready(timeout)):
                    return None
                # Data sent before the process ended comes first. It is there once the end is seen,
                # but it may have arrived after the socket was polled.
                socket_fd = self._socket.fileno()
                has_data = socket_fd in ready or socket_fd in self._ready(0.0)
            part = self._part(descriptors) if has_data else b""
            if part is None:
                continue
            if not part:
                raise EOFError
            self._received += part
            if len(self._received) > self._longest and b"\n" not in part:
                raise TooLong(self._received)
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _part(self, descriptors: bool) -> bytes | None:
        """Receive some bytes; return None if they are from a process that may not send."""
        if self._speaks is not None:
            part, about, _, _ = self._socket.recvmsg(_PART, socket.CMSG_SPACE(_UCRED.size))
            sender = _UCRED.unpack(about[0][2])[0] if about else 0
            return part if not part or self._speaks(sender) else None
        if not descriptors:
            return self._socket.recv(_PART)
        part, received, flags, _ = socket.recv_fds(self._socket, _PART, _DESCRIPTORS)
        self._descriptors += received
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, "too many open files: a message lost its descriptors")
        return part

    def hang_up(self) -> None:
        """Close the connection for both ends. Threads that wait in ``receive`` return."""
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end, and the descriptors whose message never arrived in full."""
        self._socket.close()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
