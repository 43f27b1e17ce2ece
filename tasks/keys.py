"""Keyed randomness: every random number is a function of what it is for, never of what ran before.

Seeds are SHA-256 of the names that identify a draw, so they are the same in every process, on every
machine and in every version of Python (``hash`` is not).
"""

from __future__ import annotations

import hashlib


def key(*names: int | str) -> int:
    """The 63-bit seed of the draw called ``names``, e.g. ``key("order", seed, number, epoch)``."""
    digest = hashlib.sha256("\x1f".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
