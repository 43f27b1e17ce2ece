"""Fusing: which trials are seated beside others of their study, to be trained together with them.

Theory of operation. Trials of one structure in one lane meet at each epoch, and their steps are
computed together (``tasks.trainer.lockstep``): for small networks that is several times faster, and
changes no bit. Whether it is, their trainer finds out, and says so with each epoch. Until it says
that they cannot be trained together, trials of such a study take every seat of a lane that one of
them is in, and its strategy is asked for as many as there are seats.
"""

from __future__ import annotations

from ..model.study import StudySpec
from ..state.lane_time import residents
from ..state.state import EngineState, StudyState


def may_fuse(spec: StudySpec) -> bool:
    """Whether trials of the study may be trained together, as far as the study says."""
    limited = spec.memory_limit is not None or spec.epoch_timeout is not None
    fits = spec.contract == "torch" and spec.exactness == "bitwise"
    return spec.fuse == "auto" and fits and not limited


def fuses(study: StudyState) -> bool:
    """Whether trials of the study are seated together."""
    return not study.apart_in_lanes and may_fuse(study.spec)


def why_not(study: StudyState) -> str:
    """Why trials of the study are not trained together, for people; empty if they are."""
    spec = study.spec
    if spec.fuse == "off":
        return 'the study says fuse="off"'
    if spec.contract != "torch":
        return "only the steps of a TorchTrainable are Penstock's"
    if spec.exactness != "bitwise":
        return "only bitwise studies are"
    if not may_fuse(spec):
        return "a limit of memory or of an epoch's time holds for each trial alone"
    return "their trainer could not (penstock story says why)" if study.apart_in_lanes else ""


def any_seats(state: EngineState) -> bool:
    """Whether any lane has several seats."""
    return any(device.device.seats > 1 for device in state.devices.values())


def seats_to_fill(state: EngineState, study: StudyState) -> int:
    """How many seats are free in lanes where a trial of the study is."""
    if not fuses(study):
        return 0
    found = 0
    for name, device in state.devices.items():
        if device.device.seats == 1 or not state.usable(name) or name in study.refused:
            continue
        for lane in device.lanes_in_use():
            if any(each.study == study.spec.id for each in residents(state, device, lane)):
                found += sum(not device.fences[slot] for slot in device.seats_of(lane))
    return found
