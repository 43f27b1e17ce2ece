"""Capabilities: what can be measured on this machine, and why the rest cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .gpu import GpuSource
from .perf import PerfSource
from .process import ProcessSource
from .source import Source


@dataclass(frozen=True, slots=True)
class Capability:
    """A counter of a source, and the ``reason`` why it cannot be read (empty if it can)."""

    source: str
    counter: str
    reason: str = ""

    @property
    def measured(self) -> bool:
        return not self.reason


def capabilities(gpus: Iterable[str] = ()) -> tuple[Capability, ...]:
    """Try each counter once, for this process and for the GPUs with these UUIDs.

    A counter that cannot be read will be absent from readings. It is never reported as zero.
    """
    sources = (*open_sources(0.0), *map(GpuSource, gpus))
    results: list[Capability] = []
    for source in sources:
        results += (Capability(source.name, counter) for counter in source.names)
        results += (Capability(source.name, *missing) for missing in source.missing.items())
        source.close()
    return tuple(results)


def open_sources(now: float) -> tuple[Source, ...]:
    """Open the sources that every machine may have. ``now``: time on the caller's steady clock."""
    return PerfSource(now), ProcessSource()
