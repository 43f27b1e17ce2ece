"""A process of users' code that reads questions and writes answers, one per line."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...base.errors import UsageError
from ...tasks.process.lifeline import MARK_VARIABLE
from .launcher import end_marked, new_mark

log = logging.getLogger(__name__)

_PIPE_SIZE = 1 << 20
#: Seconds that a process has to end after it has closed its output.
_ENDING = 0.1
#: Seconds until a killed process must be gone. Only an uninterruptible call takes long.
_KILL_TIMEOUT = 1.0


class LineProcess:
    """A started process in its own session. Only its methods ``wait`` and ``end`` wait."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start ``command`` with ``variables`` as its environment. Raises OSError."""
        self._mark = new_mark()
        self._popen = subprocess.Popen(
            command,
            env={**variables, MARK_VARIABLE: self._mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._input, self._output = self._popen.stdin.fileno(), self._popen.stdout.fileno()
        with suppress(OSError):  # a user may have too many pipes for larger ones
            fcntl.fcntl(self._input, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._unsent, self._received = b"", b""
        #: True once the process has closed its output.
        self.silent = False

    @property
    def received(self) -> int:
        """The number of bytes of an unfinished line."""
        return len(self._received)

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._popen.poll() is None

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds; return True if there is output, or room to send more."""
        unsent = [self._input] if self._unsent else []
        return any(select.select([self._output], unsent, [], timeout))

    def send(self, line: bytes) -> None:
        """Send as much of a line as there is room for now. ``read`` sends the rest."""
        self._unsent += line + b"\n"
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._input, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # it has ended, which ``read`` finds
            self._unsent = b""

    def read(self) -> bytes | None:
        """Return the next line; None if it has not arrived yet."""
        if self._unsent:
            rest, self._unsent = self._unsent, b""
            self.send(rest[:-1])
        with suppress(BlockingIOError):
            while not self.silent and b"\n" not in self._received:
                more = os.read(self._output, 1 << 20)
                self._received += more
                self.silent = not more
        line, newline, rest = self._received.partition(b"\n")
        if not newline:
            return None
        self._received = rest
        return line

    def end(self) -> int:
        """End the process and all processes that it started.

        Returns its exit status, or minus a signal's number. Does not wait for the pipes to close,
        since a daemon that the process started may hold them open.
        """
        if self.silent:
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(_ENDING)
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            pipe.close()
        end_marked(self._mark)
        try:
            return self._popen.wait(_KILL_TIMEOUT)
        except subprocess.TimeoutExpired:
            log.error("process %d does not die", self._popen.pid)
            return -signal.SIGKILL


def parsed(line: bytes) -> dict[str, Any]:
    """Return the answer in ``line``.

    Raises UsageError if it has none, because user code wrote to the pipe for answers.
    """
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise UsageError(f"gave an invalid answer: {line[:80]!r}")
    return answer
