"""The digest of all that training code imports, for studies that share epochs with other studies.

Theory of operation. Imports are read from the sources, also those in functions, and nothing is run.
A module of the user's contributes its file's bytes, and its own imports are followed. An installed
module contributes the names and versions of its distribution and of all distributions that it
requires. Python contributes its version. Penstock contributes only its own version, since the
libraries that it needs to run tasks do not train. Imports of a computed name are not found.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from .by_value import belongs_to_python

#: Prefix of the digest of a file with its imports. A digest without it is that of the file alone.
IMPORTS = "imports:"
_OWN = "penstock"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
#: Distributions by module. Cached because reading their lists of files takes most of a second.
_distributions_by_module = cache(metadata.packages_distributions)


def import_digest(file: Path, module: str, folder: str) -> str:
    """Return ``IMPORTS`` and the digest of ``file`` with all that it imports.

    ``module`` is the name under which the file is imported, empty for a script; ``folder`` is where
    the user's modules are. Raises ``OSError`` if ``file`` cannot be read.
    """
    imports = _Imports(folder)
    imports.read(module or "__main__", file, package=module.rpartition(".")[0])
    lines = [f"{name} {digest}" for name, digest in imports.files.items()]
    lines += [f"{name}=={version}" for name, version in _distributions(imports.installed).items()]
    lines.append(f"{platform.python_implementation()} {platform.python_version()}")
    text = "\n".join(sorted(lines))
    return f"{IMPORTS}{hashlib.sha256(text.encode()).hexdigest()}"


class _Imports:
    """The user's modules with their digests, and the installed modules by their top-level names."""

    def __init__(self, folder: str) -> None:
        self._path = [folder, *sys.path]
        self.files: dict[str, str] = {}
        self.installed: set[str] = {_OWN}

    def read(self, name: str, file: Path, package: str) -> None:
        """Add the module ``name``, which is in ``package``, and all that it imports."""
        content = file.read_bytes()
        self.files[name] = hashlib.sha256(content).hexdigest()
        names = list[str]()
        with suppress(SyntaxError, ValueError):  # a compiled module, or one that never runs
            names = list(_imported(ast.parse(content), package))
        for each in names:
            self._follow(each)

    def _follow(self, name: str) -> None:
        """Add ``name``, which may be a module or an object in one, with its packages."""
        parts = name.split(".")
        if parts[0] in sys.stdlib_module_names:
            return
        path: list[str] | None = None
        for end in range(1, len(parts) + 1):
            full = ".".join(parts[:end])
            spec = self._spec_of(full, path)
            if spec is None:
                return
            where = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
            if parts[0] == _OWN or belongs_to_python(where):
                self.installed.add(parts[0])
                return
            is_file = spec.has_location and spec.origin is not None
            if is_file and full not in self.files:
                is_package = spec.submodule_search_locations is not None
                package = full if is_package else full.rpartition(".")[0]
                self.read(full, Path(spec.origin or ""), package)
            path = list(spec.submodule_search_locations or ())

    def _spec_of(self, name: str, path: list[str] | None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, self._path if path is None else path)
        if spec is None and path is None:  # a package installed in editable form
            with suppress(ImportError, ValueError):
                spec = find_spec(name)
        return spec


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the full names of the modules and objects that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            parts = [*(above if node.level else ()), *((node.module,) if node.module else ())]
            base = ".".join(part for part in parts if part)
            if base:
                yield base
            yield from (".".join(filter(None, (base, alias.name))) for alias in node.names)


def _distributions(modules: set[str]) -> dict[str, str]:
    """Return the versions of these modules' distributions and of their requirements."""
    by_module = _distributions_by_module()
    todo = [each for module in modules for each in by_module.get(module, (module,))]
    versions: dict[str, str] = {}
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in versions:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # required elsewhere only, or without metadata
            continue
        versions[name] = distribution.version
        for requirement in () if name == _OWN else distribution.requires or ():
            requirement_name = _NAME.match(requirement)
            if requirement_name and "extra ==" not in requirement:
                todo.append(requirement_name[0])
    return versions
