"""The node's end: the kinds of reports that it passes on, and knobs never run on such hardware."""

from __future__ import annotations

from ...profiling.knobs.knobs import OFFERED

#: The kinds of the reports that the trainer's end sends.
REPORTED = ("windows", "rehearsed", "profiled")


def finding() -> tuple[str, str]:
    """Return this node's line of ``penstock doctor``: a name and a text."""
    untried = ", ".join(knob.name for knob in OFFERED.values() if knob.untried)
    return "knobs", f"{len(OFFERED)}; never run on such hardware: {untried}"
