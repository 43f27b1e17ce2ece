"""Folders of data sets that cannot be part of the project."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder(name: str) -> Path:
    """``name`` in the folder that ``PENSTOCK_DATA`` names, else in the user's cache."""
    given = os.environ.get("PENSTOCK_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(given) if given else cache / "penstock") / name


def mnist_is_here() -> bool:
    """Return True if the files of MNIST exist; otherwise print how to provide them."""
    if (data_folder("mnist") / "train-images-idx3-ubyte.gz").exists():
        return True
    print("MNIST is not here: set PENSTOCK_DATA to a folder with mnist/*-ubyte.gz")
    return False
