"""Training code by value: pickled on the client, unpickled in a trainer and nowhere else.

Theory of operation. cloudpickle writes objects of a script, a notebook or a console by value, and
objects of importable modules by name. Before the pickle comes a line of JSON with three facts: the
version of Python that wrote it (byte code fits one version only), the folders that the client's
process had put on ``sys.path``, and the imports of the code's file. The SHA-256 of line and pickle
is the code's name. A task is signed and names this digest, so a trainer unpickles only code that a
client of its own installation has sent.

In a trainer the pickled script is ``__main__`` again: as in the script, classes that the user's
code pickles, and functions that it sends to processes of its own, are found there.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import sysconfig
import threading
from collections import ChainMap, Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import IO, Any, ClassVar

from ...base.errors import BackendError, TrialFailed, UsageError
from ...base.extras import import_hint
from ...base.moved_modules import loads
from ...base.wording import named, worded
from ..checkpoints.stores import code_file, open_store, unusable
from .import_names import imported_names

#: True while code is pickled for trainers.
PICKLES_CODE: ContextVar[bool] = ContextVar("PICKLES_CODE", default=False)
#: Prefix of the target of code by value, ``pickle:<module>:<name>``.
PREFIX = "pickle:"
#: Largest size of code by value (bytes). The code passes through the broker and the scheduler.
LIMIT = 32 << 20
_LIBRARY = sysconfig.get_paths()["stdlib"]
_INSTALLED = frozenset({"site-packages", "dist-packages"})
#: The version of Python whose byte code this process can read.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_LOCAL = "file://"
_LONGEST_HEAD = 1 << 20
#: Number of threads that are pickling a module by value, by the module's name.
_registered = Counter[str]()
_lock = threading.Lock()
_ADVICE = (
    "load large data, and open files and connections, inside the function, as in `def"
    " objective(trial): data = load()`, or put the code in a module that trainers can import"
)


def is_by_value(target: str) -> bool:
    """Return True if code with this target (``scheduler.model.study.Code``) is sent by value."""
    return target.startswith(PREFIX)


def behind(code: object) -> Any:
    """Return the function or class behind a partial, a bound method or a callable instance."""
    while isinstance(code, partial):
        code = code.func
    if isinstance(code, MethodType):
        return code.__func__
    return code if hasattr(code, "__qualname__") else type(code)


def name_of(code: object) -> str:
    """Return a name to show, such as ``make.<locals>.objective`` or ``partial(objective)``."""
    if isinstance(code, partial):
        return f"partial({name_of(code.func)})"
    return str(getattr(code, "__qualname__", None) or type(code).__qualname__)


def pickled(code: object, scripts: str) -> bytes:
    """Return ``code`` by value.

    Raises ``UsageError`` with the reason if it cannot be pickled or is too large. Modules whose
    names begin with ``scripts`` exist in this process only, and are also pickled by value.
    """
    source = getattr(sys.modules.get(behind(code).__module__), "__file__", None)
    imports = [] if source is None else imported_names(Path(source))
    head = json.dumps({"python": PYTHON, "folders": list(_added_folders()), "imports": imports})
    try:
        return dumped(code, head, LIMIT, scripts).getvalue()
    except TooLargeError:
        raise UsageError(
            f"{name_of(code)} takes more than {LIMIT >> 20} MiB with all that it refers to, the"
            f" most that can be sent to trainers: {_ADVICE}"
        ) from None
    except NotPickledError as error:
        raise UsageError(
            f"{name_of(code)} cannot be sent to trainers: {error}: {_ADVICE}"
        ) from error.__cause__


class NotPickledError(Exception):
    """A value cannot be pickled. The text is the reason."""


class TooLargeError(Exception):
    """A file in memory would exceed its limit of bytes."""


def dumped(value: Any, head: str, limit: int, scripts: str) -> io.BytesIO:
    """Return the line ``head`` and the pickle of ``value``, with objects of scripts by value.

    ``scripts`` is as in ``pickled``. Raises ``NotPickledError``, or ``TooLargeError`` if both
    together have more than ``limit`` bytes.
    """
    file = _BoundedFile(limit)
    file.write(f"{head}\n".encode())
    try:
        with scripts_by_value(scripts):
            _dump(value, file)
    except TooLargeError:
        raise
    except Exception as error:  # whatever the classes of its objects raise
        raise NotPickledError(f"{named(type(error))}: {worded(error, str)}") from error
    return file


def _dump(value: Any, file: IO[bytes]) -> None:
    """Pickle ``value`` into ``file``.

    cloudpickle pickles functions under ``functools.lru_cache`` by name, but a trainer does not have
    the names of a script. Such functions of scripts are pickled with an empty cache instead.
    """
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it is untyped
        dispatch_table: ClassVar = ChainMap(
            {type(lru_cache(_cached)): _reduce_cached}, cloudpickle.Pickler.dispatch_table
        )

    Pickler(file).dump(value)


def _reduce_cached(function: Any) -> Any:
    """Return the name of a cached function if it can be imported, otherwise its parts."""
    import cloudpickle

    module = function.__module__
    if module != "__main__" and module not in cloudpickle.list_registry_pickle_by_value():
        with suppress(KeyError, AttributeError):
            if attrgetter(function.__qualname__)(sys.modules[module]) is function:
                return function.__qualname__
    return _cached, (function.cache_parameters(), function.__wrapped__)


def _cached(parameters: dict[str, Any], function: Any) -> Any:
    return lru_cache(**parameters)(function)


class _BoundedFile(io.BytesIO):
    """A file in memory that holds at most ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > self._limit:
            raise TooLargeError
        return super().write(data)


@contextmanager
def scripts_by_value(scripts: str) -> Iterator[None]:
    """Have cloudpickle pickle modules by value if their names begin with ``scripts``.

    Several threads may pickle at the same time: the last one to leave the context ends this.
    """
    from cloudpickle import register_pickle_by_value, unregister_pickle_by_value

    modules = [module for name, module in list(sys.modules.items()) if name.startswith(scripts)]
    with _lock:
        for module in modules:
            register_pickle_by_value(module)
        _registered.update(module.__name__ for module in modules)
    token = PICKLES_CODE.set(True)
    try:
        yield
    finally:
        PICKLES_CODE.reset(token)
        with _lock:
            _registered.subtract(module.__name__ for module in modules)
            for module in modules:
                if not _registered[module.__name__]:
                    unregister_pickle_by_value(module)


def _added_folders() -> Iterator[str]:
    """Yield the folders on ``sys.path`` that are not Python's own, such as a script's."""
    for entry in sys.path:
        if entry and Path(entry).is_dir() and not belongs_to_python(entry):
            yield str(Path(entry).resolve())


def belongs_to_python(file: str) -> bool:
    """Return True if a file or folder belongs to Python's library or to an installed package."""
    # Asked for each loaded module, some thousands: a Path for each would take a tenth of a second.
    return not _INSTALLED.isdisjoint(file.split("/")) or file.startswith(_LIBRARY)


def read(store: str, digest: str) -> bytes:
    """Return the code with this digest from the store. Raises ``BackendError`` with the cause."""
    uri = code_file(store, digest)
    try:
        files, path = open_store(uri)
        content: bytes = files.cat_file(path)
    except FileNotFoundError:
        raise BackendError(
            f"the store lacks the code {digest[:12]} of the study, which was deleted there: cancel"
            " the study and submit it under another study_name"
        ) from None
    except Exception as error:  # each file system raises its own classes
        raise unusable(store, error) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise BackendError(f"the code {digest[:12]} in the store is corrupt")
    return content


def folders_of(content: bytes) -> list[str]:
    """Return the folders on the client's ``sys.path`` that also exist on this node."""
    return [folder for folder in _head(content)["folders"] if Path(folder).is_dir()]


def imports_of(store: str, digest: str) -> list[str]:
    """Return the modules that the code's file imports; none if the store is not a local folder."""
    file = code_file(store, digest)
    if not file.startswith(_LOCAL):
        return []
    # The content is checked only when it is unpickled: until then it may be anything.
    wrong = (OSError, ValueError, TypeError, AttributeError, RecursionError)
    with suppress(*wrong), Path(file.removeprefix(_LOCAL)).open("rb") as content:
        return list(map(str, _head(content.readline(_LONGEST_HEAD)).get("imports", ())))
    return []


def unpickled(content: bytes, target: str) -> Any:
    """Return the code in ``content``. Raises ``TrialFailed`` (code) with what is missing here."""
    head = _head(content)
    name = target.removeprefix(PREFIX)
    if head["python"] != PYTHON:
        raise TrialFailed(
            "code",
            f"{name} was sent by Python {head['python']} and this node has {PYTHON}, which cannot"
            " read its byte code: use one version on all nodes, or put the code in a module",
        )
    try:
        return loads(content[content.index(b"\n") + 1 :])  # its digest is signed
    except ImportError as error:
        raise TrialFailed(
            "code",
            f"{name} cannot be loaded: {worded(error, str)}: install it on this node, or put the"
            f" module's file next to the script{import_hint(error)}",
        ) from error
    except Exception as error:
        raise TrialFailed(
            "code",
            f"{name} cannot be loaded: {named(type(error))}: {worded(error, str)}: see that this"
            " node has the versions of its libraries that the script's machine has",
        ) from error


def _head(content: bytes) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(content[: content.index(b"\n")])
    return head


def main_of(code: object) -> ModuleType:
    """Return a module ``__main__`` with the globals of the script or notebook around ``code``."""
    module = ModuleType("__main__")
    definition = behind(code)
    for each in (definition, *(vars(definition).values() if isinstance(definition, type) else ())):
        if isinstance(each, FunctionType) and each.__globals__.get("__name__") == "__main__":
            vars(module).update(each.__globals__)
    if isinstance(definition, type) and definition.__module__ == "__main__":
        setattr(module, definition.__name__, definition)
    # A new process that the code starts (spawn) imports this file, as under Python itself.
    if not Path(vars(module).get("__file__") or "").is_file():
        vars(module).pop("__file__", None)
    return module
