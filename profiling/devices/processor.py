"""The machine's processor, as Linux describes its first core."""

from __future__ import annotations

from pathlib import Path


def flags() -> frozenset[str]:
    """Return the processor's flags; none where the system has no ``/proc/cpuinfo``."""
    # x86 names them "flags", ARM "Features".
    return frozenset(_field("flags", "Features").split())


def vendor() -> str:
    """Return an x86 processor's vendor, such as ``AuthenticAMD``; empty where none is named."""
    return _field("vendor_id")


def model_name() -> str:
    """Return the processor's model; empty where none is named."""
    return _field("model name")


def _field(*names: str) -> str:
    """Return the value of the first line of ``/proc/cpuinfo`` that has one of these names."""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            # Not the whole file: it has the same lines for each core.
            parts = (line.partition(":") for line in lines)
            values = (text.strip() for name, _, text in parts if name.strip() in names)
            return next(values, "")
    except OSError:
        return ""
