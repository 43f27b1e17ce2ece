"""The memory of one trial: what stays between its steps, and what a step adds at most."""

from __future__ import annotations

from dataclasses import dataclass

from .values import Natural


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a trial's tensors on its device (Salus's classes of memory, docs/memory.md)."""

    #: Model, buffers and optimiser state: what stays between two steps. Gradients do not.
    persistent: Natural
    #: The most that a step or an evaluation has beside the persistent bytes.
    ephemeral: Natural
    #: What a caching allocator takes from the device for the peak; the peak where there is none.
    reserved: Natural

    @property
    def peak(self) -> int:
        """The most bytes at one time."""
        return self.persistent + self.ephemeral
