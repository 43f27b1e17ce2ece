"""Make backups of a ledger file while it is in use, and restore a backup while no service runs.

A backup is a copy of the ledger as of one moment, made with SQLite's own backup method. The copy
gets its name only after all of it was read and found intact. Only then is an older backup deleted.
So every named backup is intact, and a damaged ledger never costs a backup.

After a scheduler has gone back to an older ledger, it does not know which tasks were sent since
then. So ``restore_backup`` leaves a file (``Settings.restored``) for the next scheduler. That
scheduler revokes all attempts and continues its numbers far above the old ones
(``LedgerRestored``). The file is written before the ledger is replaced, so a crash between the two
steps causes only a gap in the numbers.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from ....base.errors import BackendError, LedgerDamaged, PenstockError, UsageError
from ...host import locks
from ...host.settings import Settings
from ...ledger.databases.base import Database
from ...ledger.databases.open import database_at
from ...ledger.databases.upkeep import Known, check_intact
from ...ledger.ledger import SqlLedger
from ...ledger.reader import Reader

log = logging.getLogger(__name__)

#: The name of the lock that a process holds while it makes a backup.
NAME = "backups"
#: The longest time in seconds between two checks whether a backup is due.
CHECK_INTERVAL = 30.0
#: Seconds that must have passed since the last backup before the end of a study causes another.
AFTER_STUDY = 300.0
#: The advice to a user whose ledger file is missing.
GONE_ADVICE = (
    "A new one begins without its studies. `penstock restore` lists the backups, which are kept"
    " until newer ones take their places, and puts one back when nothing runs here (penstock down)"
)
#: The suffixes of the files that belong to a ledger.
PARTS = ("", "-wal", "-shm", "-mark")
#: The suffixes of the files that belong to an unfinished copy, which also has a rollback journal.
OF_COPY = (*PARTS, "-journal")


class Backups(threading.Thread):
    """A thread that makes a backup whenever a backup is due, and deletes the oldest backups."""

    def __init__(self, settings: Settings, damaged: Callable[[], object] = lambda: None) -> None:
        """Create the thread, and read the state of the newest backup.

        ``damaged`` is called in this thread if the ledger is found to be damaged.
        """
        super().__init__(name="backups", daemon=True)
        self._settings = settings
        self._damaged = damaged
        self._reader = Reader(settings.ledger_url)
        self._last_state, self._made_at = (0, 0), 0.0
        if backups := _kept(settings):
            last = Reader(f"sqlite:///{backups[-1]}")
            with suppress(BackendError):  # if the backup cannot be read, another is made soon
                self._last_state = last.newest(), last.responses()[0]
                self._made_at = backups[-1].stat().st_mtime

    def run(self) -> None:
        problem = ""
        while True:
            try:
                self.back_up_if_due(time.time())
                problem = ""
            except (PenstockError, OSError) as error:
                if str(error) != problem:
                    log.warning("no backup of the ledger was made: %s", error)
                if isinstance(error, LedgerDamaged):
                    self._damaged()
                problem = str(error)
            time.sleep(min(CHECK_INTERVAL, self._settings.backup_every))

    def back_up_if_due(self, now: float) -> None:
        """Make a backup if the ledger has changed and the last backup is old enough.

        ``Settings.backup_every`` says how old. If a study has ended since the last backup,
        ``AFTER_STUDY`` seconds are enough. The oldest backups beyond ``Settings.backups`` are
        deleted.
        """
        newest, (over, _) = self._reader.newest(), self._reader.responses()
        study_ended = over != self._last_state[1]
        pause = min(AFTER_STUDY, self._settings.backup_every)
        is_due = now - self._made_at >= (pause if study_ended else self._settings.backup_every)
        if newest != self._last_state[0] and is_due:
            back_up(self._settings)
            self._last_state, self._made_at = (newest, over), now
            for old in _kept(self._settings)[: -self._settings.backups]:
                old.unlink(missing_ok=True)


def is_ledger_gone(settings: Settings) -> bool:
    """Return True if the ledger's file is missing although there are signs that it existed.

    The signs are backups of the ledger, and the mark with the number of its newest event.
    """
    database = database_at(settings.ledger_url)
    if database.file is None or database.file.exists():
        return False
    newest = database.noted()
    return bool(_kept(settings)) or (newest is not None and newest.seq > 0)


def backups_of(settings: Settings, damaged: Callable[[], object]) -> Backups | None:
    """Return the thread that makes this installation's backups, or None if it makes none."""
    if not settings.backups or database_at(settings.ledger_url).file is None:
        return None
    return Backups(settings, damaged)


def back_up(settings: Settings, to: Path | None = None) -> tuple[Path, Known]:
    """Write a backup to the file ``to``, and return its path and a summary of its content.

    If ``to`` is None, the backup goes to the state folder. Raises UsageError if ``to`` exists or
    cannot be written, or if the state folder belongs to another user. Raises BackendError if there
    is no ledger, and LedgerDamaged if the ledger is not intact.
    """
    database, source = _file_of(settings, "back it up with pg_dump")
    settings.check_home()
    if not source.exists():
        raise BackendError(f"nothing has run here yet: there is no ledger at {source}")
    folder = settings.backup_folder
    if to is None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-%fZ")
        to = folder / f"ledger-{moment}.db"
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if to.exists():
        raise UsageError(f"{to} exists already: give another name")
    temporary = to.with_name(".ledger.part" if to.parent == folder else f".{to.name}.part")
    with locks.hold(settings.run, NAME, wait=True), _removing(temporary):
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with database.translate_errors():
                _copy(source, temporary)
            content = check_intact(_named(temporary, database))
            temporary.replace(to)
        except OSError as error:
            raise UsageError(f"no backup can be written to {to}: {error.strerror}") from error
    return to, content


def list_backups(settings: Settings) -> list[str]:
    """Return a line for each backup in the state folder, newest first.

    A line says when the backup was made, what it contains, and whether it is intact.
    """
    _file_of(settings, "restore it with pg_restore")
    lines = []
    for path in reversed(_kept(settings)):
        try:
            content = check_intact(database_at(f"sqlite:///{path}"))
            problem = f"{content.newest} events, {content.studies} studies, sound"
        except BackendError as error:
            problem = f"not sound: {error}"
        made_at = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
        lines.append(f"{path}  {made_at:%Y-%m-%d %H:%M:%S}  {problem}")
    return lines


def restore_backup(settings: Settings, backup: Path) -> str:
    """Replace the ledger by ``backup``, and return a message that says so.

    The old ledger stays next to the new one under another name. Raises UsageError if a service runs
    here or if there is no such file, and LedgerDamaged if the backup is not intact.
    """
    database, ledger_file = _file_of(settings, "restore it with pg_restore")
    if not backup.is_file():
        raise UsageError(f"there is no backup {backup} (penstock restore lists them)")
    for name in ("agent", "scheduler"):
        if locks.is_running(settings.run, name):
            raise UsageError(f"the {name} is running here: run `penstock down`, then restore")
    settings.ensure_home()
    temporary = ledger_file.with_name(f".{ledger_file.name}.part")
    with locks.hold(settings.run, "scheduler"), _removing(temporary):
        try:
            shutil.copyfile(backup, temporary)
            temporary.chmod(0o600)
            content = check_intact(_named(temporary, database_at(f"sqlite:///{backup}")))
            SqlLedger.open(f"sqlite:///{temporary}").close()  # migrates the copy, writes its mark
            lost = _lost(database, content.newest)
            settings.restored.touch(mode=0o600)
            aside = _move_aside(ledger_file)
            temporary.replace(ledger_file)
            Path(f"{temporary}-mark").replace(f"{ledger_file}-mark")
        except OSError as error:
            raise UsageError(f"{backup} cannot be restored: {error.strerror}") from error
    note = f"; what was there is {aside}" if aside else ""
    problem = f"{content.newest} events, {content.studies} studies"
    return f"restored {backup} to {ledger_file}: {problem}; {lost}{note}"


def _file_of(settings: Settings, otherwise: str) -> tuple[Database, Path]:
    database = database_at(settings.ledger_url)
    if database.file is None:
        raise UsageError(
            f"the ledger is in a database server: {otherwise}, while nothing runs, and after"
            f" restoring make an empty file {settings.restored}"
        )
    return database, database.file


def _kept(settings: Settings) -> list[Path]:
    """Return the backups in the state folder, oldest first, by the time in their names."""
    return sorted(settings.backup_folder.glob("ledger-*Z.db"))


def _copy(source: Path, temporary: Path) -> None:
    """Copy all pages of the ledger in one step.

    No writer waits for the copy or makes it start over.
    """
    read = f"file:{quote(str(source.absolute()))}?mode=ro"
    with (
        closing(sqlite3.connect(read, uri=True)) as connection,
        closing(sqlite3.connect(temporary)) as copy,
    ):
        connection.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # leaves one file, which can be read-only


def _named(temporary: Path, shown: Database) -> Database:
    """Return the copy in ``temporary`` as a ledger. Messages call it by the name of ``shown``."""
    database = database_at(f"sqlite:///{temporary}")
    database.shown = shown.shown
    return database


def _lost(database: Database, newest: int) -> str:
    """Return a note on the number of events that a restored backup lacks.

    ``newest`` is the number of the backup's newest event. The note says if the number is not known.
    """
    last_event = database.noted()
    events = last_event.seq if last_event else None
    return "how many events are lost is not known" if events is None else _count(events - newest)


def _count(events: int) -> str:
    return "no event is lost" if events <= 0 else f"{events} newer events are lost"


def _move_aside(ledger_file: Path) -> Path | None:
    """Give the ledger at ``ledger_file`` a second name and return that name.

    Returns None if there is no ledger. Until another file replaces the ledger, the ledger also
    keeps its first name and the mark with its newest event. So after a crash in between, the loss
    of the write-ahead log is still detected.
    """
    if not ledger_file.exists():
        return None
    aside = ledger_file.with_name(f"{ledger_file.name}.damaged-{time.time_ns()}")
    os.link(ledger_file, aside)
    if Path(f"{ledger_file}-mark").exists():
        shutil.copyfile(f"{ledger_file}-mark", f"{aside}-mark")
    for part in ("-wal", "-shm"):
        if Path(f"{ledger_file}{part}").exists():
            Path(f"{ledger_file}{part}").rename(f"{aside}{part}")
    return aside


@contextmanager
def _removing(temporary: Path) -> Iterator[None]:
    """Remove the copy ``temporary`` before and after the body of the ``with`` statement.

    A copy may be left from an earlier process that was killed.
    """
    _remove(temporary)
    try:
        yield
    finally:
        _remove(temporary)


def _remove(temporary: Path) -> None:
    for part in OF_COPY:
        with suppress(OSError):
            Path(f"{temporary}{part}").unlink(missing_ok=True)
