"""The node's end of sharing: the folder in memory that the node's trainers share."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

#: A folder whose files are in memory on Linux.
MEMORY = Path("/dev/shm")  # noqa: S108 - the folder in it is this user's alone, or not used


def folder_of(kept: Path, memory: Path = MEMORY) -> Path:
    """Return the memory folder of the node whose trainers keep files in ``kept``."""
    name = hashlib.sha256(os.fsencode(kept)).hexdigest()[:16]
    return memory / f"penstock-{os.getuid()}-{name}"


def clear(kept: Path) -> None:
    """Remove the node's memory folder, with files left by trainers that have ended."""
    shutil.rmtree(folder_of(kept), ignore_errors=True)
