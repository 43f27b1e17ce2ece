"""The ledger as an SQLite file.

The writer's connection uses WAL, so that readers and the writer never wait for each other;
synchronous FULL, so that a commit survives a power cut; and transactions that begin IMMEDIATE, so
that a second writer is noticed at once. Readers open the file read-only and cannot take a write
lock.

Damage. SQLite checks its own structure on request (``integrity_check``: 0.2 s for 100,000 epochs).
The writer requests it before it uses a ledger. Each reader requests it before its first query, and
again after the file has changed, but spends at most a fiftieth of its time on it. SQLite reads the
intact part of the write-ahead log and silently drops the rest. So the newest event is recorded
after commits in a file beside the ledger (``ledger.db-mark``), and the ledger must hold that event.
The file is not synced: after a power cut it may name an older event than the newest, never a newer
one.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, create_engine
from xxhash import xxh3_64_hexdigest

from ....profiling.base.errors import BackendError, UsageError
from ....profiling.base.urls import hide_password
from . import base
from .base import ALLOWED, BUSY, Database, Newest, begin_by

_EXPLANATIONS = {
    "FULL": "its disk is full: free some space",
    "READONLY": "it is read-only: check the owner and the mount of its folder",
    "BUSY": BUSY,
    "LOCKED": BUSY,
    "CANTOPEN": "its folder is not there, or may not be written",
    "IOERR": "its disk reports an error, or is full",
}
#: SQLite's errors for a damaged file, by code, or by message where there is no code. Our statements
#: and texts are valid, so these errors can only mean damage.
_DAMAGED = {
    "CORRUPT": "SQLite finds its structure broken",
    "NOTADB": "it is not an SQLite file",
    "TOOBIG": "SQLite finds its structure broken",
}
_DAMAGED_WORDS = re.compile("decode|malformed|no such (table|column)|unsupported file")
#: A reader repeats the check of the structure after this many times the seconds that it took.
CHECK_SPACING = 50.0


class SqliteDatabase(Database):
    """The file of a ledger's URL.

    Its path is the text after ``sqlite:///``, taken literally: a folder's name may hold any
    character.
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
        self._seen: tuple[int, ...] = ()
        self._look_again = 0.0
        self.shown = path

    def check(self) -> None:
        if not self.file.parent.is_dir():
            raise self.unusable(_EXPLANATIONS["CANTOPEN"])

    def is_absent(self) -> bool:
        return not self.file.exists()

    def writer(self) -> Engine:
        def connect() -> sqlite3.Connection:
            connection = self._connect("rwc")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            return connection

        engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
        return begin_by(engine, "BEGIN IMMEDIATE")

    def reader(self) -> Engine:
        # Each query opens the file anew, so the file may appear or vanish in between.
        return create_engine("sqlite://", creator=lambda: self._connect("ro"), poolclass=NullPool)

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

    def structure_fault(self, connection: Connection) -> str | None:
        content = str(connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar())
        return None if content == "ok" else " ".join(content.split())

    def sampled_structure_fault(self, connection: Connection) -> str | None:
        now = time.monotonic()
        if self._look_again > now:
            return None
        try:
            file = self.file.stat()
        except FileNotFoundError:  # it vanished after it was opened
            return None
        seen = file.st_ino, file.st_size, file.st_mtime_ns
        if seen == self._seen:
            return None
        found = self.structure_fault(connection)
        if found is None:
            took = time.monotonic() - now
            self._seen, self._look_again = seen, now + CHECK_SPACING * took
        return found

    def note(self, newest: Newest) -> None:
        # A commit stands even when it cannot be recorded here.
        with suppress(OSError):
            content = f"{newest.seq:020d} {newest.digest:020d}"
            mark = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(mark, f"{content} {xxh3_64_hexdigest(content.encode())}\n".encode())
            finally:
                os.close(mark)

    def noted(self) -> Newest | None:
        try:
            content, _, check = self._mark.read_text("ascii").rstrip("\n").rpartition(" ")
            if check != xxh3_64_hexdigest(content.encode()):
                return None
            seq, digest = content.split()
            return Newest(int(seq), int(digest))
        except (OSError, ValueError):
            return None  # never written, or not completely: nothing is known

    def _connect(self, mode: str) -> sqlite3.Connection:
        # isolation_level None: Python opens no transactions behind SQLAlchemy's back.
        return sqlite3.connect(
            f"file:{quote(str(self.file.absolute()))}?mode={mode}",
            uri=True,
            timeout=base.LOCK_TIMEOUT,
            isolation_level=None,
            check_same_thread=False,
        )


def _code(error: BaseException | None) -> str:
    return str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_")
