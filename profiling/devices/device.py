"""Device values: a GPU or a set of CPU cores, its slots, and the queue of each slot.

Written forms: ``cpu:2x1`` is two devices of one core each, ``cpu:1x2`` is one device of two cores,
``cpu:2x1*2`` is two one-core devices with two slots each. ``gpu:all`` and ``gpu:0,1`` are GPUs.
``auto`` is every GPU, or one device a CPU core if there is no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Device:
    """One schedulable device of a node."""

    #: Unique in the installation: ``cpu.<node>.<cores>`` or ``cuda.<node>.<uuid8>``.
    name: str
    #: The node that it belongs to.
    node: str
    #: One of ``KINDS``.
    kind: str
    #: The CPU cores that its processes are bound to.
    cores: tuple[int, ...]
    #: Memory in bytes; None if unknown.
    memory: int | None
    #: How many trials it can hold at once.
    slots: int = 1
    #: A GPU's name for ``CUDA_VISIBLE_DEVICES``; None for CPU cores.
    uuid: str | None = None
    #: The hardware's own name.
    model: str = ""
    #: Why its energy cannot be measured; empty if it can.
    unmetered: str = "nobody has looked for meters"

    def queue(self, slot: int) -> str:
        """The Celery queue that feeds ``slot`` (0 to ``slots`` - 1)."""
        return f"{self.name}.s{slot}"
