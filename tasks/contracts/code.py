"""Refer to training code on the client, so that trainers find it again.

Theory of operation. Code that other processes can import is sent by name: ``module:attr`` or
``/path/script.py:attr``, the folder to put on ``sys.path``, and the SHA-256 of its source file. A
node whose file differs refuses the study. All other code is sent by value (``by_value``). Nothing
here imports torch: the client refers to code without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from contextvars import ContextVar
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ...base.errors import UsageError
from . import by_value
from .import_digest import import_digest

#: Prefix of the module names of scripts that are imported without their ``__main__`` part.
SCRIPT = "penstock_script_"


class Found(BaseException):
    """Ends the import of a script at the ``optimize()`` call whose code the trainer looks for.

    A trainer does not need the rest of the script. No ``except Exception`` stops this.
    """

    def __init__(self, code: object) -> None:
        super().__init__("the code was found")
        self.code = code


#: Qualified name of the code that a trainer looks for while it imports a script; else None.
IMPORT_TARGET: ContextVar[str | None] = ContextVar("IMPORT_TARGET", default=None)


def is_imported(func: object) -> bool:
    """Return True if ``optimize(func)`` was called by a script that a trainer imports.

    The call must then do nothing, since the study runs already. If ``func`` is the code that the
    trainer looks for, raise ``Found``, which ends the import: the lines that follow in the script
    expect that the study has ended.
    """
    import_target = IMPORT_TARGET.get()
    if import_target is not None and getattr(func, "__qualname__", None) == import_target:
        raise Found(func)
    return import_target is not None


class Reference(NamedTuple):
    """A reference to code for trainers: the fields of ``scheduler.model.study.Code``, and content.

    ``content`` is the code itself if it is sent by value; otherwise it is empty.
    """

    target: str
    path: str
    digest: str
    content: bytes = b""


def refer(code: object, *, runs_anew: bool) -> Reference:
    """Return a reference to code: by name if other processes can import it, otherwise by value.

    ``runs_anew`` is True if code of the running script is sent by value as well, so that trainers
    need not run the script's top level again. It is still sent by name if it cannot be pickled or
    is too large.

    Raises ``UsageError``, which says what to do, for code that can be sent neither way.
    """
    by_name = reference(code)
    if by_name is not None and not (runs_anew and code.__module__ == "__main__"):
        return Reference(*by_name)
    try:
        content = by_value.pickled(code, SCRIPT)
    except UsageError as error:
        if by_name is None:
            advice = "or define it at the top level of a .py file, which trainers import"
            raise UsageError(f"{error}; {advice}") from error
        return Reference(*by_name)
    module, folder = _origin(code)
    target = f"{by_value.PREFIX}{module}:{by_value.name_of(code)}"
    return Reference(target, folder, hashlib.sha256(content).hexdigest(), content)


def with_imports(named: Reference, code: Any) -> Reference:
    """Return the reference of ``code``, sent by name, with the digest of all that it imports.

    Raises ``UsageError`` if an imported file cannot be read.
    """
    where = named.target.rpartition(":")[0]
    is_script = where.endswith(".py")
    source = Path(sys.modules[code.__module__].__file__ or "").resolve()
    try:
        digest = import_digest(source, "" if is_script else where, named.path)
    except OSError as error:
        raise UsageError(f"{where} imports what cannot be read: {error}") from error
    return named._replace(digest=digest)


def refer_to_value(value: object, name: str, folder: str) -> Reference:
    """Return a reference to ``value`` by value, shown as ``name``, with its modules in ``folder``.

    Raises ``UsageError`` if it cannot be pickled.
    """
    content = by_value.pickled(value, SCRIPT)
    digest = hashlib.sha256(content).hexdigest()
    return Reference(f"{by_value.PREFIX}{name}", folder, digest, content)


def reference(code: object) -> tuple[str, str, str] | None:
    """Return ``(target, path, digest)`` for code by name; None if no other process can import it.

    Raises ``UsageError`` if the file from which it was imported cannot be read any more.
    """
    if not isinstance(code, (type, FunctionType)):
        return None
    name = code.__qualname__
    module = sys.modules.get(code.__module__)
    source = getattr(module, "__file__", None)
    if module is None or source is None:
        return None
    try:
        definition = walk(module, name)
    except AttributeError:
        return None
    file = Path(source).resolve()
    if definition is not code or file.suffix != ".py":
        return None
    digest = _read_digest(name, file)
    importable = _importable(module)
    if importable is None:  # run as `python script.py`
        return f"{file}:{name}", str(file.parent), digest
    return f"{importable}:{name}", str(_root(importable, file)), digest


def _importable(module: ModuleType) -> str | None:
    """Return the name under which other processes import ``module``; None for a script."""
    name = module.__name__
    if name == "__main__" and module.__spec__ is not None:
        return module.__spec__.name  # run as `python -m module`
    return None if name == "__main__" or name.startswith(SCRIPT) else name


def _root(importable: str, file: Path) -> Path:
    """Return the folder from which the module ``importable`` in ``file`` is imported."""
    return file.parents[importable.count(".") + (file.name == "__init__.py")]


def _origin(code: object) -> tuple[str, str]:
    """Return the origin of code by value: a name to show, and the folder with its modules."""
    module = sys.modules.get(str(getattr(by_value.behind(code), "__module__", "")))
    source = getattr(module, "__file__", None)
    if module is None or source is None:
        return "notebook" if "ipykernel" in sys.modules else "console", working_folder()
    file, importable = Path(source).resolve(), _importable(module)
    if importable is None:
        return file.stem, str(file.parent)
    if by_value.belongs_to_python(str(file)):
        return importable, working_folder()
    return importable, str(_root(importable, file))


def working_folder() -> str:
    """Return this process's working directory. Raises ``UsageError`` if it was deleted."""
    try:
        return str(Path.cwd())
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be found ({error.strerror}): change to one that exists"
        ) from error


def _read_digest(name: str, file: Path) -> str:
    try:
        return file_digest(file)
    except OSError as error:
        raise UsageError(
            f"{name} was imported from {file}, which cannot be read any more ({error.strerror}):"
            " put it back, trainers import it from there"
        ) from error


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a source file in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def walk(module: ModuleType, name: str) -> object:
    """Return the attribute with this qualified name. Raises ``AttributeError``."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def import_script(file: Path) -> ModuleType:
    """Import a script under a special name, so that its ``__main__`` part does not run."""
    name = f"{SCRIPT}{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Found:
        raise  # all that the code needs has been imported
    except BaseException:
        del sys.modules[name]
        raise
    return module
