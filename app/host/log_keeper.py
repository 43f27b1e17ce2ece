"""Keep the logs of a state folder small while they are written.

Theory of operation. A log that has outgrown its limit is cut in place, while it is being written.
Its middle is removed, and a line in its place says how many bytes were cut. To do so, the end of
the log is copied to just after its beginning. Lines written meanwhile are copied, too, again and
again until there are no new ones. Then the file is truncated there. Writers append, so their next
lines go to the new end. So only lines written in the instant of the truncation are lost. The file
keeps its beginning (how the process started) and its end (how it ended). The line between them is
always at the same place, so that the next cut finds it and adds its own bytes.

A ``LogKeeper`` in the scheduler and one in the node agent check the logs four times a second. So a
flood of lines takes at most the space of a quarter of a second of writing. A lock keeps the two
keepers from cutting at once.

A log that nobody has written to for long is emptied, but not deleted, since it may be open.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from ...base.errors import UsageError
from . import locks
from .logs import CUT
from .settings import Settings

log = logging.getLogger(__name__)

#: The name of the lock for cutting logs.
NAME = "logs"
#: Seconds between two looks.
PERIOD = 0.25
#: A log that is cut keeps its beginning and its end, each with the limit's bytes divided by this.
SHARE = 4
#: The most rounds of copying lines that were written meanwhile; and the bytes copied at once.
ROUNDS, CHUNK = 64, 1 << 20
_MARK = re.compile(rb"\n\[penstock: about +(\d+) bytes were cut here[^\n]*\]\n")


class LogKeeper(threading.Thread):
    """Keeps the logs of a state folder within the size and age that its settings allow.

    Use it as a context manager. It never raises: a failure is logged once.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="log-keeper", daemon=True)
        self._settings = settings
        self._over = threading.Event()
        self._last_error = ""

    def __enter__(self) -> LogKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while True:
            with self._noting():
                self._look()
            if self._over.wait(PERIOD):
                return

    def _look(self) -> None:
        """Cut logs that are too long, and empty those that are old."""
        limit, since = self._settings.log_limit, time.time() - self._settings.log_age_s
        logs = list(_logs(self._settings.logs))
        long = [path for path, status in logs if status.st_size > limit]
        old = [path for path, status in logs if status.st_size and status.st_mtime < since]
        if not (long or old):
            return
        with suppress(UsageError), locks.hold(self._settings.run, NAME):  # else the other one does
            for path in long:
                with self._noting():
                    trim(path, limit)
            for path in old:
                with self._noting(), _opened(path) as fd:
                    if fd is not None and os.fstat(fd).st_mtime < since:
                        os.ftruncate(fd, 0)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if str(error) != self._last_error:
                log.warning("a log is not kept small: %s", error)
            self._last_error = str(error)


def _logs(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the path and state of each log in ``folder``."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".log") and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # removed since it was listed
                    yield Path(entry.path), entry.stat(follow_symlinks=False)


def trim(path: Path, limit: int) -> int:
    """Cut the middle out of a log of more than ``limit`` bytes. Returns its new size, or 0."""
    with _opened(path) as fd:
        if fd is None or (size := os.fstat(fd).st_size) <= limit:
            return 0
        share = limit // SHARE
        mark = _MARK.match(os.pread(fd, len(_mark(0)), share))
        before, mark_size = (int(mark[1]), len(mark[0])) if mark else (0, 0)
        offset = begin = share + len(_mark(0))
        copied = -1
        for _ in range(ROUNDS):
            if copied < 0 or size - copied + offset - begin > 2 * share:
                copied, offset = _line_after(fd, size - share), begin
            offset += _copy(fd, copied, size, offset)
            copied = size
            cut = before + size - mark_size - share - (offset - begin)
            os.pwrite(fd, _mark(cut), share)
            size = os.fstat(fd).st_size
            if size <= copied:
                break
        os.ftruncate(fd, offset)
        return offset


def _mark(cut: int) -> bytes:
    """Return the line that marks a cut; its length is always the same."""
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"\n{CUT}{cut:>20} bytes were cut here, the last at {at}]\n".encode()


def _line_after(fd: int, offset: int) -> int:
    """Return the start of the first line after ``offset``; ``offset`` if that is far away."""
    head, newline, _ = os.pread(fd, 4096, offset).partition(b"\n")
    return offset + len(head) + 1 if newline else offset


def _copy(fd: int, first: int, last: int, to: int) -> int:
    """Copy the bytes from ``first`` to ``last`` to the earlier place ``to``; return the count."""
    copied = 0
    while data := os.pread(fd, min(CHUNK, last - first - copied), first + copied):
        copied += os.pwrite(fd, data, to + copied)
    return copied


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Open a log and yield its descriptor, or None if it is gone or not a plain file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        yield None
        return
    try:
        yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)
