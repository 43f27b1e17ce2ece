"""What counters are read from: one seam for the kernel's events, ``/proc``, pressure and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .windows import Count


@dataclass(frozen=True, slots=True)
class Readings:
    """What one source read: cumulative counters, and values of the moment."""

    counts: Mapping[str, Count] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)


class Source(Protocol):
    """Made open. What it cannot read it leaves out, and says why in ``missing`` (name: reason)."""

    @property
    def name(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]:
        """What it reads, of counters and gauges."""
        ...

    @property
    def missing(self) -> Mapping[str, str]: ...

    def read(self, now: float) -> Readings:
        """Read all; ``now`` is the time on the caller's steady clock (seconds)."""
        ...

    def close(self) -> None: ...


def text(path: Path) -> str:
    """The text of a file of the kernel's. Raises OSError."""
    return path.read_text()


def why_not(path: Path, error: OSError) -> str:
    """Why a file of the kernel's could not be read."""
    return f"{path}: {error.strerror}"
