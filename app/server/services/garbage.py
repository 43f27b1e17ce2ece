"""Find and delete files that nobody needs, for the command ``penstock gc``.

These files are checkpoints that no row of the ledger names, code by value and objects that no study
needs, and logs that were not written for as long as the setting ``log_age`` says. For a study that
is over, the ledger keeps the rows of only ``keep_checkpoints`` states, so its other states have no
row. A checkpoint that a worker has written and not reported yet has no row either. So while any
study is not over, only files older than a day count, as in the janitor's sweep.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ....base.urls import hide_password
from ...broker import installation
from ...host.settings import Settings
from ...ledger.reader import Reader
from .janitor import SWEEP_AGE, delete, garbage_in

REST_AGE = 60.0


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file that may be deleted: its path or URI, and its size in bytes."""

    name: str
    size: int
    is_log: bool

    @property
    def shown(self) -> str:
        """The file's name for messages, without a password."""
        return hide_password(self.name)

    def remove(self) -> None:
        """Delete a file of the store.

        A log is emptied instead, because a process may have it open.
        """
        if self.is_log:
            os.truncate(self.name, 0)
        else:
            delete(self.name)


def find(settings: Settings) -> Iterator[Garbage]:
    """Yield all garbage. Raises BackendError if there is no ledger or it cannot be read."""
    reader = Reader(settings.ledger_url)
    # An ask-and-tell study has no checkpoints and may stay open for ever.
    at_rest = all(
        study.finished_at is not None or study.contract == "ask" for study in reader.studies()
    )
    url = installation.checkpoints(settings.store_url, installation.installation_key(settings))
    for uri, size in garbage_in(url, reader, REST_AGE if at_rest else SWEEP_AGE):
        yield Garbage(uri, size, is_log=False)
    for log in sorted(settings.logs.glob("*.log")):
        with suppress(FileNotFoundError):  # it vanished after it was listed
            status = log.lstat()
            old = status.st_mtime < time.time() - settings.log_age_s
            if stat.S_ISREG(status.st_mode) and status.st_size and old:
                yield Garbage(str(log), status.st_size, is_log=True)
