"""The length of a trial's next segment, from the engine's state, and the kind of its start."""

from __future__ import annotations

from ...profiling.costs.segment_costs import SegmentStart
from ...profiling.costs.table import SHORTEST_EPOCH
from ..model.decisions import Member
from ..model.segment_length import LengthReason, SegmentLength
from ..model.trial import Trial
from ..policies.segments import segment_length
from ..state.state import EngineState


def next_length(
    state: EngineState,
    trial: Trial,
    members: tuple[Member, ...],
    *,
    one_epoch: bool,
    left: float,
) -> SegmentLength:
    """Return the length of the trial's next segment on ``members``, and the reason for it.

    ``one_epoch`` is True if an extension wants a segment of one epoch (``SegmentValues``). ``left``
    is the number of seconds during which the segment may start epochs; it is infinite if no limit
    of the study is near.
    """
    spec, seconds = state.studies[trial.study].spec, state.epoch_seconds(trial)
    # An objective whose last epoch is accepted has still to return.
    limit, limited_by = max(1, trial.target - trial.epoch), LengthReason.TARGET
    if spec.max_segment < limit:
        limit, limited_by = spec.max_segment, LengthReason.STUDY
    width_plan = state.courses.get(trial.id)
    if width_plan is not None and width_plan.wide == len(members) and 0 < width_plan.epochs < limit:
        limit, limited_by = width_plan.epochs, LengthReason.PLAN
    if seconds is not None and left < limit * max(SHORTEST_EPOCH, seconds):
        within = max(1, int(left / max(SHORTEST_EPOCH, seconds)))
        limit, limited_by = within, LengthReason.LIMIT
    if one_epoch:
        limit, limited_by = 1, LengthReason.PROBE
    # After a preemption the trial may resume in another slot, unless this is the only one.
    alone = len(state.devices) == 1 and len(state.devices[members[0].device].fences) == 1
    tier = SegmentStart.TRAINER if alone else SegmentStart.STORE
    return segment_length(
        seconds,
        limit,
        limited_by,
        overhead=state.costs.segment_overhead,
        resume=state.costs.resume(spec.id, tier),
        tier=tier,
        interval=state.preemptions.interval,
        running=len(state.attempts) + 1,
    )


def segment_start(trial: Trial, members: tuple[Member, ...]) -> SegmentStart:
    """Return the kind of start that a waiting trial's next segment has on ``members``.

    After a failure or a loss, the trainer may have ended, so the state in its memory is assumed to
    be lost.
    """
    if trial.epoch == trial.begin:
        return SegmentStart.NEW
    has_trainer = trial.members == members and not (trial.losses or trial.failures)
    return SegmentStart.TRAINER if has_trainer else SegmentStart.STORE
