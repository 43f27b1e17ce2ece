"""Delete checkpoints and code that nobody needs any more, in a thread of the scheduler.

Theory of operation. The ledger's table of durable states decides: a checkpoint file that no row
names is garbage. Files are named by their content, so several rows, even rows of several studies,
may name the same file. So the rows are read right before a file is deleted, and after the commit
that removed a row.

Files that the engine discards are deleted soon. If a store does not answer, deletions are retried
with growing pauses. The *sweep* finds files that were forgotten in a crash, that were written and
never reported, or that a killed writer has left. The sweep runs at the start and then once a day.
The sweep deletes every checkpoint in the installation's folder that no row names and that is older
than a day, and code by value that no study needs (``code_files``). By that age, a file's writer has
reported it or never will.

There is one race: if a discarded state is made again at the very moment of its deletion, it has a
row but no file. Such a state counts as damaged, and the trial continues from an older state or by
replay.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from ....base.backoff import Backoff
from ....base.urls import hide_password
from ....tasks.checkpoints.stores import open_store
from ...ledger.reader import Reader
from .code_files import NAME, unneeded

log = logging.getLogger(__name__)

#: Seconds between two sweeps, and the age in seconds above which a sweep deletes a file.
SWEEP_EVERY = SWEEP_AGE = 86_400.0
#: The pauses, in seconds, between retries while a store does not answer.
PAUSES = Backoff(first=1.0, longest=300.0)
#: The largest number of files that are deleted after each reading of the ledger.
BATCH = 200
#: The end of the paths of Penstock's own states: the digest of a checkpoint, or the temporary file
#: of a writer that may have been killed.
_OURS = re.compile(r"/[0-9a-f]{64}\.(pt|\d+\.tmp)$")


class Janitor(threading.Thread):
    """A thread that deletes files. Any other thread may call ``discard``."""

    def __init__(self, url: str, reader: Reader) -> None:
        """Create the thread.

        ``url`` is the installation's own folder in the store, which has no files of others.
        """
        super().__init__(name="janitor", daemon=True)
        self._url = url
        self._reader = reader
        self._due: deque[str] = deque()
        self._changed = threading.Condition()

    def discard(self, uris: Sequence[str]) -> None:
        """Delete these files soon, except for files that a durable state names by then."""
        with self._changed:
            self._due.extend(uris)
            self._changed.notify()

    def run(self) -> None:
        failures = 0
        sweep_at = time.monotonic()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due, max(0.0, sweep_at - time.monotonic()))
            try:
                self.delete_due()
                if time.monotonic() >= sweep_at:
                    self.sweep()
                    sweep_at = time.monotonic() + SWEEP_EVERY
                failures = 0
            except Exception as error:  # the store's library may raise anything
                log.warning(
                    "checkpoints cannot be deleted now, and will be later: %s",
                    hide_password(str(error)),
                )
                failures += 1
                time.sleep(PAUSES.after(failures))

    def delete_due(self) -> None:
        """Delete the discarded files.

        A file that cannot be deleted moves to the end of the queue.
        """
        while self._due:
            uris = [self._due[i] for i in range(min(BATCH, len(self._due)))]
            uris_in_use = self._reader.named(uris)
            for uri in uris:
                try:
                    if uri not in uris_in_use:
                        delete(uri)
                except Exception:
                    self._due.rotate(-1)
                    raise
                self._due.popleft()

    def sweep(self) -> None:
        """Delete the old files in the folder that no durable state names and no study needs."""
        files = garbage_in(self._url, self._reader, SWEEP_AGE)
        for uri, _ in files:
            delete(uri)
        if files:
            log.info("deleted %d files of the store that nothing refers to", len(files))


def garbage_in(url: str, reader: Reader, age: float) -> list[tuple[str, int]]:
    """Return the URI and size in bytes of each unneeded file below ``url``.

    The files are states that the ledger does not name, and code and objects that no study needs, if
    they are older than ``age`` seconds.
    """
    files = list(_files(url))
    before = time.time() - age
    old = {uri: size for uri, made_at, size in files if made_at < before and _OURS.search(uri)}
    states = [(uri, old[uri]) for uri in sorted(old.keys() - reader.all_named())]
    return states + unneeded(files, reader, age)


def _files(url: str) -> Iterator[tuple[str, float, int]]:
    """Yield the URI, the time of the last write and the size of our files in the folder.

    The time is in seconds since 1970, and the size is in bytes.
    """
    files, root = open_store(url)
    files.invalidate_cache()
    if not files.exists(root):
        return
    for path, info in files.find(root, detail=True).items():
        written_at = _written_at(info)
        if written_at is not None and (_OURS.search(path) or NAME.search(path)):
            yield str(files.unstrip_protocol(path)), written_at, int(info.get("size") or 0)


def delete(uri: str) -> None:
    """Delete a file of a state, of code or of an object.

    A file that is gone already is no error.
    """
    files, path = open_store(uri)
    if not (_OURS.search(path) or NAME.search(path)):
        log.warning("%s is not a name of ours: it is left in place", hide_password(uri))
        return
    try:
        files.rm_file(path)
    except FileNotFoundError:
        log.debug("%s is gone already", uri)


def _written_at(info: dict[str, Any]) -> float | None:
    """Return a file's time of writing, in seconds since 1970, or None if it is not known.

    File systems use different names for this time in ``info``.
    """
    for name in ("mtime", "LastModified", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return float(value)
    return None
