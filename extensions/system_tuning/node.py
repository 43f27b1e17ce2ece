"""The node's end: which system parameters never ran on such hardware, for ``doctor``."""

from __future__ import annotations

from ...profiling.knobs.knobs import KNOBS


def finding() -> tuple[str, str]:
    """Return what ``penstock doctor`` says of this node: a name, and words."""
    untried = ", ".join(knob.name for knob in KNOBS.values() if knob.untried)
    return "knobs", f"{len(KNOBS)}; never run on such hardware: {untried}"
