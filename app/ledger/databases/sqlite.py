"""The ledger as an SQLite file.

The writer's connection uses three settings. The journal mode is WAL, so that readers and the writer
never wait for each other. The mode ``synchronous`` is FULL, so that a commit survives a power cut.
Transactions begin with IMMEDIATE, so that a second writer is noticed at once. Readers open the file
read-only and cannot take a write lock.

Damage to the structure. SQLite checks its own structure on request (``integrity_check``: 0.2 s for
100,000 epochs). The writer requests this check before it uses a ledger. A reader requests the check
before a query if the file was replaced, or if the file has changed since the last check. But all
readers together spend at most a fiftieth of the time on checks. For this purpose, the last check is
recorded in a file next to the ledger (``ledger.db-checked``). If a query reads only one table, only
this table is checked. The list of studies is an exception, which the module ``going`` describes.

Lost events. SQLite reads the intact part of the write-ahead log and silently drops the rest. So the
newest event is recorded, from time to time after a commit, in a file next to the ledger
(``ledger.db-mark``), and the ledger must contain that event. This file is not synced to the disk.
After a power cut the file may name an older event than the newest, but never a newer event.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from xxhash import xxh3_64_hexdigest

from ....base.errors import BackendError, UsageError
from ....base.urls import hide_password
from . import base
from .base import ALLOWED, BUSY, Ask, Database, Newest, value

if TYPE_CHECKING:
    from sqlalchemy import Engine

_EXPLANATIONS = {
    "FULL": "its disk is full: free some space",
    "READONLY": "it is read-only: check the owner and the mount of its folder",
    "BUSY": BUSY,
    "LOCKED": BUSY,
    "CANTOPEN": "its folder is not there, or may not be written",
    "IOERR": "its disk reports an error, or is full",
}
#: SQLite's errors for a damaged file, by error code. Errors without a code are recognised by their
#: message. Penstock's statements and texts are valid, so these errors can only mean damage.
_DAMAGED = {
    "CORRUPT": "SQLite finds its structure broken",
    "NOTADB": "it is not an SQLite file",
    "TOOBIG": "SQLite finds its structure broken",
}
_DAMAGED_WORDS = re.compile("decode|malformed|no such (table|column)|unsupported file")
#: The largest number of bytes that stay in the file of the write-ahead log when SQLite reuses the
#: file. Without a limit, the file would keep the size that it reached while a reader prevented its
#: reuse. SQLite applies the limit only when it writes. So the scheduler truncates a larger file
#: when there is nothing to write.
LOG_LIMIT = 4 << 20
#: The time from one check of the structure to the next check, divided by the time that a check
#: takes.
CHECK_SPACING = 50


class _Check(NamedTuple):
    """A past check that found the structure intact. Times are in nanoseconds since 1970."""

    #: The state of the file at the time of the check (see ``SqliteDatabase._stat``).
    file: tuple[int, ...]
    began: int
    #: The time at which the next check is due if the file has changed by then.
    due: int

    def holds(self, file: tuple[int, ...]) -> bool:
        """Return True if ``file`` need not be checked at present.

        A file that has changed needs no check before ``due``. A file that was replaced always needs
        a check.
        """
        recent = self.began <= time.time_ns() < self.due
        return self.file == file or (recent and self.file[:1] == file[:1])


class SqliteDatabase(Database):
    """The SQLite database at a ledger's URL.

    The path of the file is the text after ``sqlite:///``. The text is taken literally, since the
    name of a folder may contain any character.
    """

    file: Path
    # UnicodeDecodeError: SQLite's message may quote damaged bytes, which Python cannot decode.
    errors = (sqlite3.Error, UnicodeDecodeError)
    contradictions = (sqlite3.IntegrityError, OverflowError)
    restoring = (
        "Nothing of it is shown or changed. `penstock restore` lists its backups, and puts one in"
        " its place when nothing runs here (penstock down)"
    )

    def __init__(self, url: str) -> None:
        scheme, _, path = url.partition(":///")
        if scheme != "sqlite" or path in ("", ":memory:"):
            raise UsageError.refuse("ledger", hide_password(url), ALLOWED)
        self.file = Path(path)
        self._mark = Path(f"{path}-mark")
        self._check_file = Path(f"{path}-checked")
        #: The last check of the structure of each table, by the name of the table. The empty name
        #: stands for all tables.
        self._checked: dict[str, _Check] = {}
        self.shown = path

    def check(self) -> None:
        if not self.file.parent.is_dir():
            raise self.unusable(_EXPLANATIONS["CANTOPEN"])

    def is_absent(self) -> bool:
        return not self.file.exists()

    def writer(self) -> Engine:
        from sqlalchemy import NullPool, create_engine

        from .upkeep import begin_by

        def connect() -> sqlite3.Connection:
            connection = self._connect("rwc")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}")
            connection.execute("PRAGMA foreign_keys = ON")
            return connection

        engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
        return begin_by(engine, "BEGIN IMMEDIATE")

    def reader(self) -> Engine:
        from sqlalchemy import NullPool, create_engine

        # Each query opens the file again, so the file may appear or vanish in between.
        return create_engine("sqlite://", creator=lambda: self._connect("ro"), poolclass=NullPool)

    def shrink_log(self, driver: sqlite3.Connection) -> None:
        log = Path(f"{self.file}-wal")
        if not log.exists() or log.stat().st_size <= LOG_LIMIT:
            return
        driver.execute("PRAGMA busy_timeout = 0")  # a reader at work is not waited for
        try:
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            driver.execute(f"PRAGMA busy_timeout = {base.LOCK_TIMEOUT * 1000:.0f}")

    @contextmanager
    def direct(self) -> Iterator[Ask]:
        with closing(self._connect("ro")) as connection:
            yield lambda statement: connection.execute(statement).fetchall()

    def has_table(self, ask: Ask, name: str) -> bool:
        tables = ask("SELECT name FROM sqlite_master WHERE type = 'table'")
        return (name,) in map(tuple, tables)

    @contextmanager
    def transaction(self, driver: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        driver.execute("BEGIN IMMEDIATE")
        try:
            yield driver
            driver.execute("COMMIT")
        except BaseException:
            # A full disk may already have ended the transaction; then this does nothing.
            driver.rollback()
            raise

    def explain(self, error: BaseException | None) -> str:
        name = _code(error)
        return f"{_EXPLANATIONS.get(name.partition('_')[0], str(error))} (SQLITE_{name})"

    def trouble(self, error: BaseException | None) -> BackendError:
        words = _DAMAGED.get(_code(error).partition("_")[0])
        if words is None and _DAMAGED_WORDS.search(str(error)):
            words = "SQLite finds its structure broken"
        return super().trouble(error) if words is None else self.damaged(f"{words} ({error})")

    def structure_fault(self, ask: Ask) -> str | None:
        return self._structure_fault(ask, "1")

    def _structure_fault(self, ask: Ask, what: str) -> str | None:
        """Return the fault that SQLite finds in its structure, or None.

        ``what`` is the name of the table to check. If ``what`` is a number, all tables are checked,
        and at most that number of faults is reported.
        """
        content = str(value(ask, f"PRAGMA integrity_check({what})"))
        return None if content == "ok" else " ".join(content.split())

    def sampled_structure_fault(self, ask: Ask, table: str | None = None) -> str | None:
        name = table or ""
        file = self._stat()
        if not file:  # it vanished after it was opened
            return None
        if name not in self._checked or not self._checked[name].holds(file):
            last_check = None if name else self._read_check()
            if last_check is None or not last_check.holds(file):
                return self._check(name, ask, file)
            self._checked[name] = last_check
        return None

    def _check(self, name: str, ask: Ask, file: tuple[int, ...]) -> str | None:
        """Check the structure of the table ``name``, or of all tables if ``name`` is empty.

        Return the fault that was found. If there is none, record the check and return None.
        """
        began = time.time_ns()
        if message := self._structure_fault(ask, name or "1"):
            return message
        next_check = began + CHECK_SPACING * (time.time_ns() - began)
        self._checked[name] = _Check(file, began, next_check)
        # A copy, such as a backup, has no mark, and gets no file next to it.
        if not name and file and self._mark.exists():
            numbers = (*file, began, next_check)
            _write_line(self._check_file, " ".join(f"{number:020d}" for number in numbers))
        return None

    def _read_check(self) -> _Check | None:
        """Return the last check of all tables by any process, or None if no check is recorded."""
        numbers = [int(number) for number in _read_line(self._check_file).split()]
        return _Check(tuple(numbers[:-2]), *numbers[-2:]) if numbers else None

    def _stat(self) -> tuple[int, ...]:
        """Return the inode, the size and the time of change (in ns) of the file.

        The result is empty if the file does not exist.
        """
        try:
            file = self.file.stat()
        except FileNotFoundError:
            return ()
        return file.st_ino, file.st_size, file.st_mtime_ns

    def note(self, newest: Newest) -> None:
        _write_line(self._mark, f"{newest.seq:020d} {newest.digest:020d}")

    def noted(self) -> Newest | None:
        numbers = _read_line(self._mark).split()
        return Newest(*map(int, numbers)) if len(numbers) == 2 else None

    def _connect(self, mode: str) -> sqlite3.Connection:
        # isolation_level None: Python opens no transactions behind SQLAlchemy's back.
        return sqlite3.connect(
            f"file:{quote(str(self.file.absolute()))}?mode={mode}",
            uri=True,
            timeout=base.LOCK_TIMEOUT,
            isolation_level=None,
            check_same_thread=False,
        )


def _write_line(file: Path, text: str) -> None:
    """Overwrite ``file`` with ``text``, which always has the same length.

    Any OSError is ignored.
    """
    with suppress(OSError):
        line = f"{text} {xxh3_64_hexdigest(text.encode())}\n".encode()
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _read_line(file: Path) -> str:
    """Return the text that ``_write_line`` wrote.

    The result is empty if there is no such text or if the text is incomplete.
    """
    try:
        text, _, check = file.read_text("ascii").rstrip("\n").rpartition(" ")
    except (OSError, ValueError):
        return ""
    return text if check == xxh3_64_hexdigest(text.encode()) else ""


def _code(error: BaseException | None) -> str:
    return str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_")
