"""The node's end: which reports it passes on, and which knobs never ran on such hardware."""

from __future__ import annotations

from collections.abc import Mapping

from ...profiling.knobs.knobs import KNOBS

#: The values of each report of the trainer's end, by its kind.
REPORTED: Mapping[str, tuple[str, ...]] = {
    "windows": ("windows", "failed"),
    "profiled": ("epoch", "values"),
}


def finding() -> tuple[str, str]:
    """Return what ``penstock doctor`` says of this node: a name, and words."""
    untried = ", ".join(knob.name for knob in KNOBS.values() if knob.untried)
    return "knobs", f"{len(KNOBS)}; never run on such hardware: {untried}"
