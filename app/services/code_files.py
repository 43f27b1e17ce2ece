"""The files of code by value in the installation's store: written, looked for, found unneeded.

A study needs its code until it is over, and longer if it can be extended: only one that failed, or
a population, cannot. A study that is extended with newer code no longer needs the older.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

from ...scheduler.model.study import OVER, forks
from ...tasks.checkpoints.stores import (
    code_file,
    is_local,
    make_folder,
    open_store,
    unusable,
    write_synced,
)
from ...tasks.contracts.by_value import is_by_value
from ..ledger.codec import spec_from_json
from ..ledger.reader import Reader
from ..ledger.rows import StudyRow

#: The path of such a file, which is named by its digest.
NAME = re.compile(r"/code/[0-9a-f]{64}$")


class StoredCode:
    """The code by value in ``url``, the installation's own folder in the store."""

    def __init__(self, url: str) -> None:
        self._url = url

    def keep(self, digest: str, content: bytes) -> None:
        """Write code under its SHA-256. Readers see all of it or nothing. Raises BackendError.

        It is written even if it is there already: a new file is not taken for garbage.
        """
        try:
            files, path = open_store(code_file(self._url, digest))
            make_folder(files, path.rpartition("/")[0])
            if is_local(files):
                write_synced(Path(path), content)
            else:
                files.pipe_file(path, content)
        except Exception as error:  # each file system raises its own classes
            raise unusable(self._url, error) from error

    def holds(self, digest: str) -> bool:
        """Whether there is code with this digest. Raises BackendError."""
        try:
            files, path = open_store(code_file(self._url, digest))
            return bool(files.exists(path))
        except Exception as error:
            raise unusable(self._url, error) from error


def needed_code(reader: Reader) -> set[str]:
    """The digests of code by value that a study needs, or may need when it is extended."""
    specs = [spec_from_json(row.spec_json) for row in reader.studies() if not _is_done(row)]
    return {code.digest for spec in specs for code in spec.codes if is_by_value(code.target)}


def _is_done(row: StudyRow) -> bool:
    """Whether a study is over and cannot be extended."""
    if row.status not in OVER:
        return False
    return row.status == "failed" or forks(spec_from_json(row.spec_json))


def unneeded(
    files: Iterable[tuple[str, float, int]], reader: Reader, age: float
) -> list[tuple[str, int]]:
    """Those of ``files`` (URI, time of writing, bytes) of code that no study needs.

    They are older than ``age`` seconds. Each is given as URI and size in bytes.
    """
    before = time.time() - age
    old = {uri: size for uri, made, size in files if NAME.search(uri) and made < before}
    named = needed_code(reader) if old else set()
    return [(uri, size) for uri, size in sorted(old.items()) if uri.rpartition("/")[2] not in named]
