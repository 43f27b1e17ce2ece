"""A process that is watched and signalled by its pidfd, which no other process ever gets.

A process id may be given to another process once its own process has ended and was waited for. A
pidfd stays with the process for which it was opened: it becomes readable when that process ends,
and a signal through it reaches only that process.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress


class Pidfd:
    """A process and its pidfd. After ``close`` the process counts as gone."""

    def __init__(self, fd: int) -> None:
        """``fd`` is the process's pidfd, which this object owns and closes."""
        self._fd = fd

    @classmethod
    def of(cls, pid: int) -> Pidfd:
        """Open the pidfd of process ``pid``. Raises ProcessLookupError if there is none."""
        return cls(os.pidfd_open(pid))

    def __enter__(self) -> Pidfd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process has ended; -1 once closed."""
        return self._fd

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds; return True if the process has ended. Reaps nothing."""
        if self._fd < 0:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def send(self, signum: signal.Signals) -> bool:
        """Send ``signum`` to the process; return False if the process is gone."""
        with suppress(ProcessLookupError):
            if self._fd >= 0:
                signal.pidfd_send_signal(self._fd, signum)
                return True
        return False

    def close(self) -> None:
        """Close the pidfd. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
