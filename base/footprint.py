"""Memory of one trial: the bytes kept between steps, and the most that a step adds."""

from __future__ import annotations

from dataclasses import dataclass

from .values import Natural


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a trial's tensors on its device (Salus's classes of memory, docs/memory.md)."""

    #: Bytes kept between two steps: model, buffers and optimiser state, but not gradients.
    persistent: Natural
    #: The most bytes that a step or an evaluation uses in addition to the persistent ones.
    ephemeral: Natural
    #: Bytes that a caching allocator takes from the device at the peak; without one, the peak.
    reserved: Natural

    @property
    def peak(self) -> int:
        """Return the most bytes in use at one time."""
        return self.persistent + self.ephemeral
