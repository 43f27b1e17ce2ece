"""The scheduler's end of the extension: fused groups of the trials in one lane."""

from __future__ import annotations

from typing import Any

from ...scheduler.engine.engine import Parts
from ...scheduler.state.extensions import Extension, SegmentValues
from .grouping import Grouping, Known, may_fuse
from .name import NAME

__all__ = ["STATE", "convert", "plug"]

#: The type of the extension's state, by which snapshots are read.
STATE = Known

#: The values sent with a segment whose trial may be fused with others.
_MAY_FUSE = SegmentValues(ext={NAME: {}})
#: Fields of a study's state in release 0.2 that now belong to the extension, with defaults.
_OF_STUDIES = {"together": 1, "unlike": False, "readers": 0, "singles": 0}


def plug(parts: Parts) -> Extension:
    """Return the extension that fuses trials if they are faster together."""
    grouping = Grouping(parts.core.state)
    return Extension(
        name=NAME,
        needed_by=may_fuse,
        segment=lambda study, trial, members: _MAY_FUSE,
        fused_groups=grouping,
        forget=grouping.forget,
    )


def convert(snapshot: dict[str, Any]) -> None:
    """Move facts about shared lanes in a snapshot of release 0.2 to the extension's own state."""
    studies = {}
    for name, study in snapshot["studies"].items():
        fields = {field: study.pop(field, default) for field, default in _OF_STUDIES.items()}
        if fields != _OF_STUDIES:
            studies[name] = fields
    if studies:
        snapshot["ext"][NAME] = {"studies": studies}
