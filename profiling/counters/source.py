"""The protocol of counter sources: the kernel's events, ``/proc``, pressure and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .windows import Count


@dataclass(frozen=True, slots=True)
class Readings:
    """One read of a source: cumulative counters, and gauges (values of the moment)."""

    counts: Mapping[str, Count] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)


class Source(Protocol):
    """A source of counters. It is open once it is made.

    Counters that it cannot read are left out, with the reason in ``missing`` (name: reason).
    """

    @property
    def name(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the counters and gauges that the source reads."""
        ...

    @property
    def missing(self) -> Mapping[str, str]: ...

    def read(self, now: float) -> Readings:
        """Read everything. ``now`` is the time on the caller's steady clock (seconds)."""
        ...

    def close(self) -> None: ...


def failure_reason(path: Path, error: OSError) -> str:
    """Return the reason why one of the kernel's files could not be read."""
    return f"{path}: {error.strerror}"
