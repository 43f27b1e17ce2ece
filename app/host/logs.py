"""The logs of a state folder: open them, keep them small while they are written, read their end.

Theory of operation. What a service, a worker or a trainer prints goes straight into a file that was
opened for appending. No process is in between, so a writer never waits, and outlives any reader.

A log that has outgrown its limit is cut in place, while it is being written. Its middle is removed,
and a line says how much that was. To do so, its end is copied to behind its beginning, then what
was written meanwhile, again and again until there is nothing new; then the file is truncated there.
The writers' next lines go to the new end, wherever that is, since they append. So only what is
written in the instant of the truncation is lost. The file keeps its beginning (why it began) and
its end (how it ended). The mark between them is always at the same place, so that the next cut
finds it and adds up.

A ``LogKeeper`` in the scheduler and one in the node agent look four times a second, and a hundred
times a second while a log grows fast. A flood thus takes the space of what it writes in a quarter
of a second, once, and then of what it writes in some hundredths of one. A lock keeps two keepers
that look at once apart.

Writers hold a shared lock on the file that they write to. It passes to a child with the open file,
and ends with the last holder. So a log that is old and that nobody can write to any more is
recognised and removed. Old logs that are open are emptied.
"""

from __future__ import annotations

import fcntl
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
from typing import IO

from ...tasks.process.output import MARK
from ..common.plain import plain
from .settings import Settings

log = logging.getLogger(__name__)

#: Seconds between two looks: usually, and while a log grows by a tenth of its limit in between.
PERIOD, FAST = 0.25, 0.01
#: Seconds without such growth until looks become rare again.
FAST_DURATION = 1.0
#: Seconds between two looks at the logs' ages.
AGE_PERIOD = 600.0
#: The most seconds that a log's removal takes. Whoever holds its lock for longer is no keeper.
REMOVAL = 1.0
#: A log that is cut keeps its beginning and its end, each the limit divided by this.
SHARE = 4
#: How often what was written meanwhile is copied, at most; the size of a piece (bytes).
ROUNDS, CHUNK = 64, 1 << 20
#: How the line begins that says how much was cut.
CUT = "[penstock: about "
_MARK = re.compile(rb"\n\[penstock: about +(\d+) bytes were cut here[^\n]*\]\n")
#: The line of a traceback that names the exception.
_EXCEPTION = re.compile(r"[\w.]+(Error|Warning|Exception|Interrupt|Exit)(: |$)")

#: The beginning of a traceback.
_TRACEBACK = "Traceback (most recent call last):"


def open_log(path: Path) -> IO[bytes]:
    """Open ``path`` for appending; it is made if needed, readable only by its owner.

    It is meant as a child's output: while the child has it open, it is not removed.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + REMOVAL
    while True:
        # Open for reading too: some file systems cannot lock other files.
        how = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.fdopen(os.open(path, how, 0o600), "ab", buffering=0)
        if (_hold(file) and _is_at(path, file.fileno())) or time.monotonic() > deadline:
            return file
        file.close()  # a keeper removes it, or removed it before the lock was ours
        time.sleep(0.001)


def _hold(file: IO[bytes]) -> bool:
    """Keep ``file`` from being removed. False if somebody is just doing that."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks: the file is never removed
        pass
    return True


def tail(path: Path, lines: int = 12) -> str:
    """The last lines of a log, for messages, without their marks. Empty if there is none."""
    try:
        # Never waits: user code may have put a pipe in its place.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            text = file.read(8192).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(plain(MARK.sub("", line, 1)) for line in text.splitlines()[-lines:])


def last_error(path: Path, since: int = 0) -> str:
    """The last line at a log's end that names an exception, or else the last line of all.

    Empty if there is none, or if nothing follows the first ``since`` bytes.
    """
    with suppress(OSError):
        if path.stat().st_size == since:
            return ""
    lines = [line for line in tail(path, lines=60).splitlines() if line.strip()]
    return next(filter(_EXCEPTION.match, reversed(lines)), "") or (lines[-1] if lines else "")


def uncaught(path: Path, since: int) -> str:
    """The exception of a traceback with which a log ends. Empty if it ends otherwise.

    Only what follows the first ``since`` bytes counts, unless the log was cut meanwhile.
    """
    try:
        if path.stat().st_size == since:
            return ""
    except OSError:
        return ""
    _, found, traced = tail(path, lines=200).rpartition(_TRACEBACK)
    # Indented lines are the places. In Python's own format nothing follows the exception.
    lines = [line for line in traced.splitlines()[1:] if line.strip() and line[0] != " "]
    return lines[0] if found and len(lines) == 1 else ""


class LogKeeper(threading.Thread):
    """Keeps the logs of a state folder within the size and age that its settings allow.

    Used as a context manager. It never raises: what it cannot do is logged once.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="log-keeper", daemon=True)
        self._folder = settings.logs
        self._limit = settings.log_limit
        self._age = settings.log_age_s
        self._over = threading.Event()
        self._sizes: dict[str, int] = {}
        self._ages_due = self._fast_until = 0.0
        self._last_error = ""

    def __enter__(self) -> LogKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            pause = PERIOD
            with self._noting():
                pause = self._trim_logs()

    def _trim_logs(self) -> float:
        """Cut logs that are too long. Returns the seconds until the next look."""
        before, self._sizes = self._sizes, dict(_sizes(self._folder))
        grown = [size - before[path] for path, size in self._sizes.items() if path in before]
        long = [path for path, size in self._sizes.items() if size > self._limit]
        old = time.monotonic() >= self._ages_due
        if long or old:
            with _alone(self._folder) as alone:
                for path in long if alone else ():
                    with self._noting():
                        self._sizes[path] = trim(Path(path), self._limit)
                if old and alone:
                    self._ages_due = time.monotonic() + AGE_PERIOD
                    for path in self._sizes:
                        with self._noting():
                            _expire(Path(path), self._age)
        if max(grown, default=0) * 10 > self._limit:
            # The other keeper may have cut the log before the next look; its writer need not have
            # ended.
            self._fast_until = time.monotonic() + FAST_DURATION
        return FAST if time.monotonic() < self._fast_until else PERIOD

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if str(error) != self._last_error:
                log.warning("a log is not kept small: %s", error)
            self._last_error = str(error)


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """The logs in ``folder`` with their sizes (bytes)."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".log") and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # removed since it was listed
                    yield entry.path, entry.stat(follow_symlinks=False).st_size


def trim(path: Path, limit: int) -> int:
    """Cut the middle out of a log of more than ``limit`` bytes. Returns its new size, or 0."""
    with _opened(path) as fd:
        if fd is None or (size := os.fstat(fd).st_size) <= limit:
            return 0
        kept = limit // SHARE
        found = _MARK.match(os.pread(fd, len(_mark(0)), kept))
        before, marked = (int(found[1]), len(found[0])) if found else (0, 0)
        offset = begin = kept + len(_mark(0))
        copied = -1
        for _ in range(ROUNDS):
            if copied < 0 or size - copied + offset - begin > 2 * kept:
                copied, offset = _line_after(fd, size - kept), begin
            offset += _copy(fd, copied, size, offset)
            copied = size
            cut = before + size - marked - kept - (offset - begin)
            os.pwrite(fd, _mark(cut), kept)
            size = os.fstat(fd).st_size
            if size <= copied:
                break
        os.ftruncate(fd, offset)
        return offset


def _mark(cut: int) -> bytes:
    """The line that marks a cut; its length is always the same."""
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"\n{CUT}{cut:>20} bytes were cut here, the last at {at}]\n".encode()


def _line_after(fd: int, offset: int) -> int:
    """Where the first line after ``offset`` begins; ``offset`` itself if that is far."""
    head, found, _ = os.pread(fd, 4096, offset).partition(b"\n")
    return offset + len(head) + 1 if found else offset


def _copy(fd: int, first: int, last: int, to: int) -> int:
    """Copy the bytes from ``first`` up to ``last`` to the earlier place ``to``; return how many."""
    done = 0
    while data := os.pread(fd, min(CHUNK, last - first - done), first + done):
        done += os.pwrite(fd, data, to + done)
    return done


def _expire(path: Path, age: float) -> None:
    """Remove a log to which nothing was written for ``age`` seconds, or empty it if it is open."""
    with _opened(path) as fd:
        if fd is None or time.time() - os.fstat(fd).st_mtime <= age:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # it is open, or the file system cannot tell
            if os.fstat(fd).st_size:
                os.ftruncate(fd, 0)
        else:
            if _is_at(path, fd):
                path.unlink()


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Open the log for reading and writing. None if it is gone or not a plain file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        yield None
        return
    try:
        yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether nobody else cuts the logs of ``folder`` during the block."""
    fd = os.open(folder / ".cutting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False
