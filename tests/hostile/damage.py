"""Damages files for a while, in all ways that a file can be wrong."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Damage = Callable[[Path, bytes, random.Random], Any]


def flipped(content: bytes, rng: random.Random, times: int) -> bytes:
    found = bytearray(content or b"\0")
    for _ in range(times):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _folder(path: Path, _content: bytes, _rng: random.Random) -> None:
    path.mkdir()
    (path / "full").write_bytes(b"x")


#: The kinds of damage: what replaces the file.
DAMAGES: dict[str, Damage] = {
    "deleted": lambda _path, _content, _rng: None,
    "empty": lambda path, _content, _rng: path.touch(),
    "cut short": lambda path, content, rng: path.write_bytes(
        content[: rng.randrange(max(1, len(content)))]
    ),
    "a bit flipped": lambda path, content, rng: path.write_bytes(flipped(content, rng, 1)),
    "bits flipped": lambda path, content, rng: path.write_bytes(flipped(content, rng, 100)),
    "garbage": lambda path, _content, rng: path.write_bytes(rng.randbytes(1000)),
    "a folder": _folder,
    "a link to nowhere": lambda path, _content, _rng: path.symlink_to("/nowhere/at/all"),
    "a link to itself": lambda path, _content, _rng: path.symlink_to(path.name),
    "a full device": lambda path, _content, _rng: path.symlink_to("/dev/full"),
    "anybody's": lambda path, content, _rng: (path.write_bytes(content), path.chmod(0o777)),
    "nobody's": lambda path, content, _rng: (path.write_bytes(content), path.chmod(0)),
}


@contextmanager
def damaged(paths: Sequence[Path], damage: str, rng: random.Random) -> Iterator[None]:
    """Damage the files in the block, then move the originals back, so that open files are kept."""
    aside = []
    try:
        for path in paths:
            content = path.read_bytes() if path.is_file() else b""
            moved = path.with_name(f"{path.name}.aside")
            path.rename(moved)
            aside.append((path, moved))
            DAMAGES[damage](path, content, rng)
        yield
    finally:
        for path, moved in aside:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            moved.replace(path)
