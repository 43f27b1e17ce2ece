"""The outlook: the scheduler's next actions, as plain values.

The outlook contains the place of each running trial, and for each waiting trial the reason why it
waits and the expected time of its start. These times are estimates from measured epochs. Making an
outlook does not change the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..model.study import ENDLESS, deadline_of
from ..model.trial import TrialState
from ..resources.slots import can_move, devices_are_reserved_for, free_slots, slot_limit
from ..state.epoch_times import next_epochs
from ..state.state import Attempt, EngineState
from ..strategies.base import UNBOUNDED
from .forecast import late_by, study_end

if TYPE_CHECKING:
    from ..engine.engine import Engine

Facts = dict[str, Any]


def outlook(engine: Engine, at: float) -> Facts:
    """Return the standing plan at ``at`` (the runner's clock).

    Times are in seconds from ``at``; None means unknown. ``rule`` is the policy's own note.
    ``dirty``: True if something has changed since the plan was made, so that the plan is made again
    when a slot is to be filled. ``trouble``: the policy's failure; the previous plan stands then,
    and a user's policy is not asked again for ``aside`` seconds.
    """
    with engine.state.costs.read_only():
        state = engine.state
        running = [
            _running(engine, fence, attempt, at) for fence, attempt in state.attempts.items()
        ]
        return {
            "policy": state.policy,
            "rule": state.rule,
            "planned": None if state.planned_at is None else at - state.planned_at,
            "dirty": state.dirty,
            "trouble": state.plan_error,
            "aside": max(0.0, state.aside_until - at),
            "running": running,
            "waiting": [
                *_waiting(engine, at),
                *_aside(state, engine.aside(), at),
            ],
            "free": [f"{slot.device}/{slot.slot}" for slot in free_slots(state, engine.extensions)],
            "next_free": min((r["ends"] for r in running if r["ends"] is not None), default=None),
            "studies": [_study(engine, name, at) for name in state.studies],
            "shared": _shared(engine),
        }


def _running(engine: Engine, fence: int, attempt: Attempt, at: float) -> Facts:
    """Return the facts of a running trial.

    The trial keeps its slots until its target, or until its objective returns. A trial that is cut
    or gives way keeps them until its epoch ends.
    """
    state, segment = engine.state, attempt.segment
    trial, study = state.trials[segment.trial], state.studies[attempt.study]
    seconds = next_epochs(state, engine.extensions, attempt)
    this_ends, ends = engine.epoch_ends(attempt), None
    gives_way = trial.id in state.hold and can_move(state, trial)
    leaves, is_open = attempt.cut or gives_way, trial.target >= UNBOUNDED
    if this_ends is not None and seconds is not None:
        this_ends = max(0.0, this_ends - at)
        if leaves:
            ends = this_ends
        elif not is_open:
            ends = this_ends + (trial.target - trial.epoch - 1) * seconds
    reason = "until its objective returns" if is_open else "until its target"
    if segment.widths:
        reason = f"measures its steps on {', '.join(map(str, sorted(segment.widths)))} devices"
    elif gives_way and study.runnable:
        reason = "until this epoch's end: it gives way to a trial that the policy puts first"
    elif attempt.cut:
        drained = any(state.cordoned(member.device) for member in segment.members)
        reason = "until this epoch's end: another width"
        if attempt.leaves:
            reason = "until this epoch's end: it need not share its device"
        if not study.runnable:
            reason = "until this epoch's end: its study is paused"
        elif drained:
            reason = "until this epoch's end: its device is taken out"
    if without := engine.extensions.seats.why_idle(attempt):
        reason = f"has no turns for now: {without}"
    return {
        "study": study.spec.name,
        "trial": trial.number,
        "fence": fence,
        "slots": [f"{member.device}/{member.slot}" for member in segment.members],
        "epoch": trial.epoch + 1,
        "target": trial.target,
        "epoch_ends": this_ends,
        "ends": ends,
        "why": reason,
    }


def _waiting(engine: Engine, at: float) -> list[Facts]:
    """Return the waiting trials in the order in which they get slots.

    Trials of paused studies get none.
    """
    state = engine.state
    usable = {name for name in state.devices if state.usable(name)}
    facts, position = list[Facts](), 0
    for name in engine.queue():
        trial = state.trials[name]
        study = state.studies[trial.study]
        reason = f"place {position + 1} in line for a slot"
        if not study.runnable:
            reason = "its study is paused"
        elif not usable:
            reason = "no device may be used now"
        elif usable <= study.refused.keys():
            reason = "no device that is there may be used for its study"
            if study.spec.environment:
                reason += f": {study.refused[min(usable)]}"
        elif position == 0 and devices_are_reserved_for(state, trial):
            width = state.courses[name].narrow
            reason = f"first in line: what becomes free is kept for it until it has {width} devices"
        elif position == 0 and (seats := engine.extensions.seats.free()):
            why = engine.extensions.too_full(trial, seats[0])
            reason += f"; no seat beside others: {why}" if why else ""
        position += study.runnable
        facts.append(_waits(state, name, at, reason))
    return facts


def _aside(state: EngineState, waiting: Mapping[str, str], at: float) -> list[Facts]:
    """Return the facts of the trials that extensions keep waiting outside the queue."""
    facts = []
    for name, why in waiting.items():
        runs = state.studies[state.trials[name].study].runnable
        facts.append(_waits(state, name, at, why if runs else "its study is paused"))
    return facts


def _waits(state: EngineState, name: str, at: float, reason: str) -> Facts:
    trial = state.trials[name]
    return {
        "study": state.studies[trial.study].spec.name,
        "trial": trial.number,
        "epoch": trial.epoch,
        "target": trial.target,
        "width": state.widths.get(name, 1),
        "waited": at - trial.since,
        "why": reason,
    }


def _shared(engine: Engine) -> list[Facts]:
    """Return the trial count of each busy device with several slots, and the limit's reason.

    If lanes have several seats, ``lanes`` has an entry for each lane in use.
    """
    state, extensions = engine.state, engine.extensions
    return [
        {
            "device": name,
            "trials": len(each.at_work),
            "why": slot_limit(state, extensions, name).why,
        }
        | ({"lanes": extensions.seats.facts(name)} if each.device.seats > 1 else {})
        for name, each in state.devices.items()
        if each.device.slots > 1 and each.at_work
    ]


def _study(engine: Engine, name: str, at: float) -> Facts:
    state = engine.state
    study = state.studies[name]
    trials = [state.trials[trial] for trial in study.trials]
    states = [trial.state for trial in trials]
    proposed = sum(not trial.branched for trial in trials)
    n_trials = study.spec.n_trials
    ends, deadline = study_end(engine, study, at), deadline_of(study.spec, study.created_at)
    return {
        "study": study.spec.name,
        "status": study.status,
        "to_propose": None if n_trials >= ENDLESS else max(0, n_trials - proposed),
        "paused_trials": states.count(TrialState.PAUSED),
        "weight": study.spec.weight,
        "priority": study.spec.priority,
        "share": study.share,
        **engine.extensions.fused_groups.facts(study),
        "ends": None if ends is None else max(0.0, ends - at),
        "deadline": None if deadline is None else deadline - at,
        "misses": late_by(study, ends),
    }
