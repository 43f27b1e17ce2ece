"""Write code and objects by value (as pickles) to the store, and find those no longer needed.

A study needs its code until the study is over, and longer if it can be extended. All studies except
failed studies and studies with PBT can be extended. A study that is extended with newer code no
longer needs the older code.

An object (``tasks.objectives.objects``) is needed as long as a study that was not deleted, or one
of its trials, has the object as an attribute.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

from ....scheduler.model.study import OVER, forks
from ....tasks.checkpoints.stores import code_file, open_store, unusable, write_whole
from ....tasks.contracts.by_value import is_by_value
from ....tasks.objectives.objects import StoredObject, value_of
from ...ledger.codec import spec_from_json
from ...ledger.reader import Reader
from ...ledger.rows import StudyRow
from ..optuna_bridge.updates import LedgerUpdates

#: The end of the path of a code file or object file. The file's name is its digest.
NAME = re.compile(r"/(code|objects)/[0-9a-f]{64}$")


class StoredCode:
    """The code by value in the folder ``url``, the installation's own folder in the store."""

    def __init__(self, url: str) -> None:
        self._url = url

    def keep(self, digest: str, content: bytes) -> None:
        """Write code under its SHA-256. A reader sees either all of the code or none of it.

        The code is written even if the store has it already. Writing makes the file new, and only
        old files count as garbage. Raises BackendError if the store cannot be used.
        """
        try:
            write_whole(code_file(self._url, digest), content)
        except Exception as error:  # each file system raises its own classes
            raise unusable(self._url, error) from error

    def holds(self, digest: str) -> bool:
        """Return True if the store has code with this digest.

        Raises BackendError if the store cannot be used.
        """
        try:
            files, path = open_store(code_file(self._url, digest))
            return bool(files.exists(path))
        except Exception as error:
            raise unusable(self._url, error) from error


def needed_code(reader: Reader) -> set[str]:
    """Return the digests of code by value that studies need, or would need to be extended."""
    specs = [spec_from_json(row.spec_json) for row in reader.studies() if not _is_done(row)]
    return {code.digest for spec in specs for code in spec.codes if is_by_value(code.target)}


def _is_done(row: StudyRow) -> bool:
    """Return True if a study is over and cannot be extended."""
    if row.status not in OVER:
        return False
    return row.status == "failed" or forks(spec_from_json(row.spec_json))


def needed_objects(reader: Reader) -> set[str]:
    """Return the digests of the objects that current attributes of studies and trials refer to."""
    current: dict[tuple[str, str, str], Any] = {}
    for study in reader.studies():
        for update in LedgerUpdates(reader, study.id).read_written():
            for name in ("user_attrs", "system_attrs"):
                for key, text in update.get(name, ()):
                    current[study.id, f"{update.get('n')}.{name}", key] = text
    values = map(value_of, current.values())
    return {value.digest for value in values if isinstance(value, StoredObject)}


def unneeded(
    files: Iterable[tuple[str, float, int]], reader: Reader, age: float
) -> list[tuple[str, int]]:
    """Return the URI and size in bytes of each of ``files`` that no study needs.

    Each file is given by its URI, its time of writing (seconds since 1970) and its size in bytes.
    Files younger than ``age`` seconds are never returned.
    """
    before = time.time() - age
    old = {uri: size for uri, made_at, size in files if NAME.search(uri) and made_at < before}
    kinds = {uri.rpartition("/")[0].rpartition("/")[2] for uri in old}
    names = needed_code(reader) if "code" in kinds else set()
    names |= needed_objects(reader) if "objects" in kinds else set()
    return [(uri, size) for uri, size in sorted(old.items()) if uri.rpartition("/")[2] not in names]
