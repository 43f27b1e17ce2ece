"""Plugs memory into the engine: trials' needs, and the number of trials that fit on a device."""

from __future__ import annotations

from ...scheduler.engine.engine import Parts
from ...scheduler.model.decisions import Member
from ...scheduler.model.trial import Trial
from ...scheduler.resources.slots import at_once
from ...scheduler.state.core import Core
from ...scheduler.state.extensions import Extension
from .events import FootprintReported
from .fit import is_too_small, left
from .footprints import Footprints
from .known import NAME, Known, convert, footprints_of, forget_study, known_of
from .lanes import lane_facts, lane_is_too_small, lane_too_full, left_in_lane
from .limit import Learner, slot_limit
from .shortages import Shortages

__all__ = ["STATE", "convert", "plug"]

#: The type of the extension's state, by which snapshots are read.
STATE = Known


def plug(parts: Parts) -> Extension:
    """Return the extension that learns trials' memory needs, and shares devices by these needs."""
    core, state = parts.core, parts.core.state
    footprints = Footprints(core)
    return Extension(
        name=NAME,
        needed_by=lambda spec: spec.contract == "torch",
        handlers={FootprintReported: footprints.on_footprint_reported},
        segment=footprints.next_segment,
        too_full=lambda trial, slot: _too_full(core, trial, slot),
        limit=lambda name: slot_limit(state, core.extensions.fused_groups, name),
        crowding=lambda trial, slot: _left_free(core, trial, slot),
        overfull=lambda device, trials: lane_is_too_small(
            state, core.extensions.fused_groups, device, trials
        ),
        foresees=lambda: any(study.processes for study in known_of(state).studies.values()),
        excuses=Shortages(core).excuses,
        on_shared=Learner(core).on_shared,
        footprints=lambda trial: footprints_of(state, trial),
        forget=lambda study: forget_study(state, study),
        of_lane=lambda name, lane: lane_facts(state, core.extensions.fused_groups, name, lane),
    )


def _too_full(core: Core, trial: Trial, slot: Member) -> str:
    """Return the reason why the trial has no room in a free slot; empty if it has room."""
    state, fused_groups, name = core.state, core.extensions.fused_groups, slot.device
    if state.is_free(name):
        return "it ran out of all memory of the device" if is_too_small(state, name, trial) else ""
    if state.is_beside(slot):
        return lane_too_full(state, fused_groups, slot, trial)
    limit = slot_limit(state, fused_groups, name, trial)
    return "" if at_once(state, name) < limit.slots else limit.why


def _left_free(core: Core, trial: Trial, slot: Member) -> float:
    """Return the bytes that stay free if the trial takes a slot next to others."""
    if core.state.is_beside(slot):
        return left_in_lane(core.state, core.extensions.fused_groups, slot, trial)
    return left(core.state, slot.device, trial)
