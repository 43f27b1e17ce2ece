"""Attributes that JSON cannot hold, such as models: kept in the store, opened on demand.

Theory of operation. Optuna's storage in memory takes any object as an attribute. Here the object is
pickled where it is set, and its bytes go into the checkpoint store under their SHA-256. Messages
and the ledger hold a *placeholder* instead: the name of the object's type, its size, and that
digest. A placeholder comes in a sealed report or command, so a process of this installation has
written the bytes that it names.

Opening an object may run code, so objects are opened only where the user's code runs: in trainers,
and in the script that submitted the study. All other processes see the placeholder as a text. A
user's attribute that merely looks like a placeholder is none: a real placeholder begins with a
space, as JSON made from a value never does. The import of a study removes that space.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import BackendError, PenstockError, UsageError
from ...base.moved_modules import loads
from ...base.wording import named, size_words, worded
from ..checkpoints.stores import (
    check_space,
    is_local,
    object_file,
    open_store,
    unusable,
    write_whole,
)
from ..contracts.by_value import PYTHON, NotPickledError, TooLargeError, dumped
from ..contracts.code import SCRIPT
from . import typed_json

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: Largest size of one object (bytes).
LIMIT = 1 << 30
#: Prefix of the text of a placeholder.
MARK = ' {"penstock.object": '

Keep = Callable[[Any], str]
Open = Callable[["StoredObject"], Any]


class StoredObject(str):
    """Stands for an object in the checkpoint store. As a text it says type and size."""

    __slots__ = ("digest",)
    digest: str

    def __new__(cls, kind: str, size: int, digest: str) -> StoredObject:
        """Make a placeholder from the name of the type, the size (bytes) and the SHA-256 (hex)."""
        placeholder = super().__new__(cls, f"<{kind}, {size_words(size)}, in the checkpoint store>")
        placeholder.digest = digest
        return placeholder

    def __copy__(self) -> StoredObject:
        return self

    def __deepcopy__(self, memo: Any) -> StoredObject:
        return self

    def __reduce__(self) -> Any:
        return str, (str(self),)  # in another process it is a plain text


def value_of(text: str) -> Any:
    """Return the value in the JSON text of an attribute; a ``StoredObject`` for a placeholder."""
    if text.startswith(typed_json.MARK):
        return typed_json.from_text(text)
    if not text.startswith(MARK):
        return json.loads(text)
    content = json.loads(text)
    return StoredObject(
        str(content["penstock.object"]), int(content["bytes"]), str(content["sha256"])
    )


def keep(store: str, value: Any) -> str:
    """Write ``value`` into the store at this URL, and return the text of its placeholder.

    Raises ``TypeError`` if the value cannot be pickled or is too large, and ``BackendError`` if the
    store cannot be used.
    """
    if not store:
        raise TypeError("there is no checkpoint store for it")
    try:
        content = dumped(value, PYTHON, LIMIT, SCRIPT).getbuffer()
    except TooLargeError:
        raise TypeError(
            f"it takes more than {size_words(LIMIT)}: upload it as an artifact"
            " (optuna.artifacts.upload_artifact)"
        ) from None
    except NotPickledError as error:
        raise TypeError(f"it cannot be pickled: {error}") from error.__cause__
    digest = hashlib.sha256(content).hexdigest()
    _write(store, digest, content)
    kind = json.dumps(type(value).__qualname__)
    return f'{MARK}{kind}, "bytes": {len(content)}, "sha256": "{digest}"}}'


def _write(store: str, digest: str, content: memoryview) -> None:
    uri = object_file(store, digest)
    try:
        files, path = open_store(uri)
        if files.exists(path) and files.info(path)["size"] == len(content):
            return
        if is_local(files):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            check_space(Path(path).parent, len(content))
        write_whole(uri, content)
    except Exception as error:  # each file system raises its own classes
        raise unusable(store, error) from error


def opened(store: str, stored: StoredObject) -> Any:
    """Return the object that ``stored`` stands for. Call this only where the user's code runs.

    Raises ``BackendError`` if its file is missing or damaged, ``UsageError`` if it cannot be loaded
    here.
    """
    try:
        files, path = open_store(object_file(store, stored.digest))
        content: bytes = files.cat_file(path)
    except FileNotFoundError:
        raise BackendError(f"the checkpoint store lacks {stored}: it was deleted there") from None
    except Exception as error:  # each file system raises its own classes
        raise unusable(store, error) from error
    if hashlib.sha256(content).hexdigest() != stored.digest:
        raise BackendError(f"{stored} is corrupt: its bytes do not match its name")
    version, _, pickled = content.partition(b"\n")
    if version != PYTHON.encode():
        raise UsageError(
            f"{stored} was written by Python {version.decode()} and this is {PYTHON}, which cannot"
            " read its byte code"
        )
    try:
        return loads(pickled)  # its digest came in a sealed message
    except PenstockError:
        raise
    except Exception as error:
        raise UsageError(
            f"{stored} cannot be opened here: {named(type(error))}: {worded(error, str)}"
        ) from error


class OpenedAttributes(dict[str, Any]):
    """Attributes whose objects are opened when they are read, each once."""

    def __init__(self, attributes: Mapping[str, Any], open_object: Open) -> None:
        super().__init__(attributes)
        self._open = open_object

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, StoredObject):
            value = self._open(value)
            self[key] = value
        return value

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - this is that method

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            self[key]
        return super().pop(key, *default)

    def values(self) -> Any:
        self._open_all()
        return super().values()

    def items(self) -> Any:
        self._open_all()
        return super().items()

    def copy(self) -> dict[str, Any]:
        return self.__copy__()

    # ``dict(...)`` bypasses all methods above if the class has no ``__iter__`` of its own.
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def __eq__(self, other: object) -> bool:
        self._open_all()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # as of a dict

    def __copy__(self) -> OpenedAttributes:
        return OpenedAttributes(_raw(self), self._open)

    def __deepcopy__(self, memo: Any) -> OpenedAttributes:
        return OpenedAttributes(copy.deepcopy(_raw(self), memo), self._open)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def _open_all(self) -> None:
        for key in self:
            self[key]


def _raw(attributes: OpenedAttributes) -> dict[str, Any]:
    return dict(dict.items(attributes))


def has_objects(trial: FrozenTrial) -> bool:
    """Return True if a user attribute of ``trial`` is an object that is not opened yet."""
    return any(isinstance(value, StoredObject) for value in trial.user_attrs.values())


def with_objects(attributes: dict[str, Any], open_object: Open) -> dict[str, Any]:
    """Return ``attributes`` with objects that are opened when they are read.

    Without any objects, the result is ``attributes`` itself.
    """
    if any(isinstance(value, StoredObject) for value in attributes.values()):
        return OpenedAttributes(attributes, open_object)
    return attributes


def with_objects_of(trial: FrozenTrial, open_object: Open) -> FrozenTrial:
    """Return a copy of ``trial`` whose user attributes went through ``with_objects``."""
    changed = copy.copy(trial)
    changed.user_attrs = with_objects(trial.user_attrs, open_object)
    return changed
