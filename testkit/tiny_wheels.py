"""Wheels with one module, as small as one can be: for environments that need no network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, code: str = "") -> Path:
    """A wheel in ``folder``. Its module has ``code``, or says its version as ``VERSION``."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code or f"VERSION = {version!r}\n",
        f"{info}/METADATA": metadata(name, version),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        wheel.writestr(f"{info}/RECORD", record)
    return file


def metadata(name: str, version: str) -> str:
    """Return the text of a package's metadata."""
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
