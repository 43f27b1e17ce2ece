"""The node's end: which reports it passes on, and which knobs never ran on such hardware."""

from __future__ import annotations

from ...profiling.knobs.knobs import OFFERED

#: The kinds of reports of the trainer's end.
REPORTED = ("windows", "rehearsed", "profiled")


def finding() -> tuple[str, str]:
    """Return this node's line of ``penstock doctor``: a name, and words."""
    untried = ", ".join(knob.name for knob in OFFERED.values() if knob.untried)
    return "knobs", f"{len(OFFERED)}; never run on such hardware: {untried}"
