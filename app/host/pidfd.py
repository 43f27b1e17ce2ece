"""A process that is watched and signalled by its pidfd, which no other process ever gets.

A process id is given to another process once its own has ended and was waited for. A pidfd stays
with the process that it was opened for: it becomes readable when that one ends, and what is sent
through it reaches that one or nobody.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress


class Pidfd:
    """A process, held by its pidfd until ``close``: from then on it counts as gone."""

    def __init__(self, fd: int) -> None:
        """``fd`` is its pidfd, which belongs to this object from now on."""
        self._fd = fd

    @classmethod
    def of(cls, pid: int) -> Pidfd:
        """Hold the process ``pid``. Raises ProcessLookupError if there is none."""
        return cls(os.pidfd_open(pid))

    def __enter__(self) -> Pidfd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process has ended; -1 once closed."""
        return self._fd

    def wait(self, timeout: float) -> bool:
        """Return True if the process ends within ``timeout`` seconds. It stays to be reaped."""
        if self._fd < 0:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def send(self, signum: signal.Signals) -> bool:
        """Send ``signum`` to the process. Return whether it is still there."""
        with suppress(ProcessLookupError):
            if self._fd >= 0:
                signal.pidfd_send_signal(self._fd, signum)
                return True
        return False

    def close(self) -> None:
        """Let go of the process. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
