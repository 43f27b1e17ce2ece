"""Environments for the tests: virtual environments and the root of a file system, without a copy of
torch. They see what is installed here, and have a tiny package of their own in front of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from testkit.tiny_wheels import metadata

LIBRARIES = Path(sysconfig.get_path("purelib"))
_SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
#: Lets Python see what is installed here, editable packages too, behind what is its own.
_SEES = f"import site; site.addsitedir({str(LIBRARIES)!r})\n"


def make_venv(folder: Path, version: str, *, sees: bool = True) -> Path:
    """A virtual environment with the module ``tiny`` in this version. ``sees``: torch, Penstock."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return _furnished(folder, version, sees=sees)


def _furnished(prefix: Path, version: str, *, sees: bool) -> Path:
    site = prefix / _SITE
    site.mkdir(parents=True, exist_ok=True)
    (site / "tiny.py").write_text(f"VERSION = {version!r}\n")
    if sees:
        (site / "_sees.pth").write_text(_SEES)
    return prefix


def pretend_version(prefix: Path, version: str) -> None:
    """Have the environment say that its Penstock is of this version."""
    info = prefix / _SITE / f"penstock-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(metadata("penstock", version))


def make_root(root: Path, version: str) -> Path:
    """The root of a file system whose ``python3`` has the module ``tiny`` in this version.

    It has libraries of its own, as copies of what Python and torch load here, and nothing else.
    """
    import torch

    python = Path(sys.executable).resolve()
    prefix = root / "usr" / "local"
    (prefix / "bin").mkdir(parents=True)
    objects = [python, Path(torch.__file__).parent / "lib" / "libtorch_python.so"]
    objects += Path(sysconfig.get_path("stdlib")).glob("lib-dynload/*.so")
    objects += [each for each in LIBRARIES.glob("**/*.so*") if "torch" not in each.parts]
    for library in _loaded_by(objects):
        _copy(root, library)
    if python.parts[1] == "usr":  # else it is in a folder that stays the node's
        _copy(root, python)
        shutil.copytree(
            sysconfig.get_path("stdlib"),
            _in(root, Path(sysconfig.get_path("stdlib"))),
            ignore=shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__"),
        )
    for each in ("lib", "lib64", "bin", "sbin"):
        if (link := Path("/", each)).is_symlink() and not (root / each).exists():
            (root / each).symlink_to(link.readlink())
    (root / "etc").mkdir()
    (prefix / "bin" / "python3").symlink_to(python)
    (prefix / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    _furnished(prefix, version, sees=True)
    return root


def _loaded_by(objects: list[Path]) -> set[Path]:
    """The system's libraries that these load."""
    said = subprocess.run(
        ["ldd", *map(str, objects)], capture_output=True, text=True, check=False
    ).stdout
    words = {word for line in said.splitlines() for word in line.split() if word.startswith("/")}
    found = {Path(word) for word in words if not word.endswith(":")}
    return {each for each in found if each.parts[1] in {"lib", "lib64", "usr"}}


def _in(root: Path, path: Path) -> Path:
    """Return the place of ``path`` in the root, which has this system's links (``/lib``)."""
    real = path.parent.resolve() / path.name
    return root / real.relative_to("/")


def _copy(root: Path, file: Path) -> None:
    target = _in(root, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(file.resolve(), target)
