"""A control group with a hard limit on the memory of all its processes together."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
#: Files of the limit and of the peak, by version of control groups.
FILES = {
    1: ("memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    2: ("memory.max", "memory.peak"),
}


class MemoryGroup:
    """A new group of version 1 or 2. The kernel ends one of its processes that pass the limit.

    Raises OSError where groups cannot be made, which mostly takes root.
    """

    def __init__(self) -> None:
        version = 2 if (ROOT / "cgroup.controllers").exists() else 1
        self._limit, self._peak = FILES[version]
        self.path = (ROOT if version == 2 else ROOT / "memory") / f"penstock-{os.getpid()}"
        self.path.mkdir()
        if not (self.path / self._limit).exists():
            self.close()
            raise OSError(f"{self.path} has no memory controller")

    def limit(self, size: int) -> None:
        """Let the group have ``size`` bytes at most."""
        (self.path / self._limit).write_text(str(size))

    def peak(self) -> int:
        """Return the group's peak in bytes since the last call, or since its start.

        Kernels that cannot reset the peak return it since the group's start.
        """
        found = int((self.path / self._peak).read_text())
        with suppress(OSError):
            (self.path / self._peak).write_text("0")
        return found

    def close(self) -> None:
        """Remove the group, whose processes have ended."""
        self.path.rmdir()


def join(path: str) -> None:
    """Make this process, and all that it starts from now on, members of the group."""
    (Path(path) / "cgroup.procs").write_text(str(os.getpid()))
