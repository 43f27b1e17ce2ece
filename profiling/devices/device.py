"""Device values: a GPU or a set of CPU cores, its slots, and the queue of each slot.

Written forms: ``cpu:2x1`` is two devices of one core each, ``cpu:1x2`` one device of two cores,
``cpu:2x1*2`` two one-core devices with two slots each, ``gpu:all`` or ``gpu:0,1`` GPUs.
``auto`` is every GPU, or where there is none one device a CPU core.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Device:
    """One schedulable device of a node.

    ``name`` is unique in the installation (``cpu.<node>.<cores>`` or ``cuda.<node>.<uuid8>``);
    ``cores`` are the CPU cores its processes are bound to; ``memory`` is in bytes (None: unknown);
    ``uuid`` names a GPU for ``CUDA_VISIBLE_DEVICES``; ``model`` is the hardware's own name.
    ``unmetered`` is why its energy cannot be measured, empty where it can.
    """

    name: str
    node: str
    kind: str
    cores: tuple[int, ...]
    memory: int | None
    slots: int = 1
    uuid: str | None = None
    model: str = ""
    unmetered: str = "nobody has looked for meters"

    def queue(self, slot: int) -> str:
        """The Celery queue that feeds ``slot`` (0 to ``slots`` - 1)."""
        return f"{self.name}.s{slot}"
