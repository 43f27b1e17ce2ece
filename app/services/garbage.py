"""``penstock gc``: what takes up room and serves nobody, and how to be rid of it.

Checkpoints that no row of the ledger names, and logs that nobody has written to for a week. Of
studies that are over the ledger keeps no more than ``keep_checkpoints`` says, so what is beyond
that has no row. What a worker has written and not reported yet has none either: while a study is
not over, only what is older than a day counts, as for the janitor's own sweep.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ...profiling.base.urls import hide_password
from ..broker import installation
from ..host.settings import Settings
from ..ledger.reader import Reader
from .janitor import SWEEP_AGE, delete, unnamed

#: Seconds from which on a log, or a file of an installation at rest, is old.
LOG_AGE = 7 * 86_400.0
REST_AGE = 60.0


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file that may go: its path or URI, and how much room it takes (bytes)."""

    name: str
    size: int
    is_log: bool

    @property
    def shown(self) -> str:
        """For people: without a password."""
        return hide_password(self.name)

    def remove(self) -> None:
        """Delete a checkpoint; empty a log, for a process may have it open."""
        if self.is_log:
            os.truncate(self.name, 0)
        else:
            delete(self.name)


def find(settings: Settings) -> Iterator[Garbage]:
    """All there is. BackendError where nothing has run here, or the ledger is out of reach."""
    reader = Reader(settings.ledger_url)
    # A study that is asked has no checkpoints, and may stay open for ever.
    at_rest = all(
        study.finished_at is not None or study.contract == "ask" for study in reader.studies()
    )
    url = installation.checkpoints(settings.store_url, installation.installation_key(settings))
    for uri, size in unnamed(url, reader, REST_AGE if at_rest else SWEEP_AGE):
        yield Garbage(uri, size, is_log=False)
    for log in sorted(settings.logs.glob("*.log")):
        with suppress(FileNotFoundError):  # it is gone since it was listed
            seen = log.lstat()
            old = seen.st_mtime < time.time() - LOG_AGE
            if stat.S_ISREG(seen.st_mode) and seen.st_size and old:
                yield Garbage(str(log), seen.st_size, is_log=True)


def size_of(n: int) -> str:
    """Bytes for people: ``812 bytes``, ``1.4 MB``."""
    if n < 1000:
        return f"{n} bytes"
    number = float(n)
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 1000 or unit == "GB":
            break
    return f"{number:.1f} {unit}"
