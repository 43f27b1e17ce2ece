"""The node's end: which reports it passes on, and which knobs never ran on such hardware."""

from __future__ import annotations

from ...profiling.knobs.knobs import KNOBS

#: The kinds of reports of the trainer's end.
REPORTED = ("windows", "profiled")


def finding() -> tuple[str, str]:
    """Return what ``penstock doctor`` says of this node: a name, and words."""
    untried = ", ".join(knob.name for knob in KNOBS.values() if knob.untried)
    return "knobs", f"{len(KNOBS)}; never run on such hardware: {untried}"
