"""The logs of a state folder: opened, kept small while they are written, and read for last words.

Theory of operation. What a service, a worker or a trainer prints goes straight into a file that was
opened for appending: nobody stands between, so a writer never waits and outlives whoever reads. A
log that has outgrown its limit is cut in place, under its writers: its middle goes, and a line says
how much that was. Its end is copied to behind its beginning, then what was written meanwhile, again
and again until nothing was; then the file is cut off there. Their next line goes to the new end,
wherever that is, since they append. So only what is written in the instant of the cut is lost.

The file's beginning stays (why it began), and its end (how it ended); the mark between them lies
always at the same place, so that the next cut finds it and adds up.

A ``LogKeeper`` in the scheduler and in the node agent looks four times a second, and a hundred
times while a log grows fast: a flood takes what it writes in a quarter of a second, once, and then
what it writes in some hundredths of one. Two that look at once are kept apart by a lock.

Writers hold a shared lock on the file that they write to (it passes to a child with the open file,
and ends with the last who has it). So a log that is old, and that nobody can write to any more, is
known and removed. Old ones that are open are emptied.
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

from ..common.plain import plain
from .settings import Settings

log = logging.getLogger(__name__)

#: Seconds between two looks, and while a log grows by a tenth of its limit from one to the next.
PERIOD, FAST = 0.25, 0.01
#: Seconds without such growth until looks are rare again.
CALM = 1.0
#: Seconds between two looks at the logs' ages.
AGE_PERIOD = 600.0
#: Seconds that a log's removal takes at most. Who holds its lock for longer is no keeper.
REMOVAL = 1.0
#: Of a log that is cut, so much of the limit stays of its beginning, and of its end.
SHARE = 4
#: How often in a row that is copied which was written meanwhile; in pieces of so many bytes.
ROUNDS, CHUNK = 64, 1 << 20
_MARK = re.compile(rb"\n\[penstock: about +(\d+) bytes were cut here[^\n]*\]\n")
#: The line of a traceback that names the exception.
_EXCEPTION = re.compile(r"[\w.]+(Error|Warning|Exception|Interrupt|Exit)(: |$)")

#: Where a traceback begins.
_TRACEBACK = "Traceback (most recent call last):"


def open_log(path: Path) -> IO[bytes]:
    """``path`` to be appended to, for its owner's eyes alone; made where it is not there.

    It is to be a child's output: the child's hold on it keeps it from being removed.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + REMOVAL
    while True:
        # To be read as well: some file systems lock nothing else.
        how = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.fdopen(os.open(path, how, 0o600), "ab", buffering=0)
        if (_hold(file) and _is_at(path, file.fileno())) or time.monotonic() > deadline:
            return file
        file.close()  # a keeper removes it, or has removed it before the lock was ours
        time.sleep(0.001)


def _hold(file: IO[bytes]) -> bool:
    """Keep ``file`` from being removed; False where somebody is just about to."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks: it is never removed
        pass
    return True


def tail(path: Path, lines: int = 12) -> str:
    """The end of a log: last words, for messages. Empty where there is none."""
    try:
        # Not waiting: user code may have put a pipe in its place.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            text = file.read(8192).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(plain(line) for line in text.splitlines()[-lines:])


def last_error(path: Path) -> str:
    """The line of a log's end that names an exception, the last one; else the last that says any.

    Empty where there is none.
    """
    lines = [line for line in tail(path, lines=60).splitlines() if line.strip()]
    return next(filter(_EXCEPTION.match, reversed(lines)), "") or (lines[-1] if lines else "")


def uncaught(path: Path, since: int) -> str:
    """The exception of a traceback that a log ends with; empty where it ends otherwise.

    Only what is behind the first ``since`` bytes counts, unless the log was cut meanwhile.
    """
    try:
        if path.stat().st_size == since:
            return ""
    except OSError:
        return ""
    _, found, traced = tail(path, lines=200).rpartition(_TRACEBACK)
    # What is indented are the places, and in Python's own way nothing follows the exception.
    lines = [line for line in traced.splitlines()[1:] if line.strip() and line[0] != " "]
    return lines[0] if found and len(lines) == 1 else ""


class LogKeeper(threading.Thread):
    """Keeps the logs of a state folder as small and as young as its settings say.

    Use as a context. It never raises: what it cannot do is logged once.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="log-keeper", daemon=True)
        self._folder = settings.logs
        self._limit = settings.log_limit
        self._age = settings.log_age * 86_400.0
        self._over = threading.Event()
        self._sizes: dict[str, int] = {}
        self._ages_due = self._fast_until = 0.0
        self._said = ""

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
                pause = self._look()

    def _look(self) -> float:
        """Cut what is too long; seconds until the next look."""
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
            # The other keeper may have cut it when we look next: that is not its writer's end.
            self._fast_until = time.monotonic() + CALM
        return FAST if time.monotonic() < self._fast_until else PERIOD

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if str(error) != self._said:
                log.warning("a log is not kept small: %s", error)
            self._said = str(error)


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """The logs in ``folder``, and how many bytes each has."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".log") and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # it is gone since it was listed
                    yield entry.path, entry.stat(follow_symlinks=False).st_size


def trim(path: Path, limit: int) -> int:
    """Cut the middle out of a log of more than ``limit`` bytes; how many it has afterwards."""
    with _opened(path) as fd:
        if fd is None or (size := os.fstat(fd).st_size) <= limit:
            return 0
        kept = limit // SHARE
        found = _MARK.match(os.pread(fd, len(_mark(0)), kept))
        before, marked = (int(found[1]), len(found[0])) if found else (0, 0)
        place = begin = kept + len(_mark(0))
        copied = -1
        for _ in range(ROUNDS):
            if copied < 0 or size - copied + place - begin > 2 * kept:
                copied, place = _line_after(fd, size - kept), begin
            place += _copy(fd, copied, size, place)
            copied = size
            cut = before + size - marked - kept - (place - begin)
            os.pwrite(fd, _mark(cut), kept)
            size = os.fstat(fd).st_size
            if size <= copied:
                break
        os.ftruncate(fd, place)
        return place


def _mark(cut: int) -> bytes:
    """Of the same length always."""
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"\n[penstock: about {cut:>20} bytes were cut here, the last at {at}]\n".encode()


def _line_after(fd: int, place: int) -> int:
    """Where the first line behind ``place`` begins; ``place`` where that is far."""
    head, found, _ = os.pread(fd, 4096, place).partition(b"\n")
    return place + len(head) + 1 if found else place


def _copy(fd: int, first: int, last: int, to: int) -> int:
    """Copy the bytes from ``first`` up to ``last`` to ``to``, which is before; how many it were."""
    done = 0
    while data := os.pread(fd, min(CHUNK, last - first - done), first + done):
        done += os.pwrite(fd, data, to + done)
    return done


def _expire(path: Path, age: float) -> None:
    """Remove a log that nobody has written to for ``age`` seconds, or empty it where one may."""
    with _opened(path) as fd:
        if fd is None or time.time() - os.fstat(fd).st_mtime <= age:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # it is open, or nobody can say
            if os.fstat(fd).st_size:
                os.ftruncate(fd, 0)
        else:
            if _is_at(path, fd):
                path.unlink()


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """The log, to read and write; None where it is gone or is no plain file."""
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
