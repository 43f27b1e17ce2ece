"""The standing plan: when it is made again, what a policy is given for it, and how it is followed.

Theory of operation. The plan becomes *dirty* when its input changes: a trial waits or is over, a
device came or went, an estimate moved, or the wide part of a width plan ended. A dirty plan is
computed again when a slot is to be filled, at most once in ``REPLAN_INTERVAL_PER_TRIAL`` seconds
for each trial, or in ``MAX_REPLAN_INTERVAL`` seconds if there are many. In between, new trials
queue in order of arrival. A policy that orders the trials of all studies is also asked when a trial
waits and no slot is free, because running trials may have to give way. The engine keeps count for
width plans: each accepted wide epoch leaves one fewer, and after the last one the trial becomes
narrow. If a policy fails, the last good plan stands.

A user's policy is not part of the engine, so that a replay does not depend on it. Like a sampler it
is asked (``AskPlan``), and its answer is an event. Until the answer comes, slots are given by the
previous plan. A policy that fails, or whose plan is impossible, is not asked again for
``POLICY_BACKOFF`` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

from ...profiling.costs.throughput import Shape
from ..model.decisions import AskPlan, Member
from ..model.events import PolicyChosen
from ..model.snapshot import (
    POLICY_BACKOFF,
    Candidate,
    Plan,
    Snapshot,
    WindowPlan,
    find_fault,
    steady,
)
from ..model.study import shards_of
from ..model.trial import Trial, TrialState
from ..policies.registry import find_policy, is_plugin
from ..resources.fair_share import TOLERANCE, apportion
from ..resources.lanes import seats_beside
from ..resources.slots import can_move
from ..resources.turn_weights import any_without_turns
from ..state.core import Core, Refused
from ..state.epoch_times import to_boundary
from ..state.fusing import planned_ratio
from ..state.lane_time import waited_in_seat
from ..state.state import Attempt, EngineState, StudyState
from ..strategies.base import rungs_of, staged
from ..strategies.promotion import promotion_probabilities

#: The longest time between two plans (seconds), with many trials.
MAX_REPLAN_INTERVAL = 1.0

#: Time between two plans for each trial (seconds): few trials are planned in less time.
REPLAN_INTERVAL_PER_TRIAL = 0.02

#: After so many width windows in a row without a gain a study has no further ones.
MAX_VAIN_WINDOWS = 4

#: The largest part of its epoch that a new trial waits for a plan.
MAX_WAIT_SHARE = 0.1


class Planning:
    """Keeps the standing plan, and says what it holds for each trial."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def replan(self, free: list[Member]) -> None:
        state = self._state
        if not (state.dirty and self.due() <= self._core.at):
            return
        ready = self._core.ready()
        if not self._can_plan(ready):
            return
        state.dirty = False
        state.planned_at = self._core.at
        snapshots = self._snapshots(ready, free)
        if is_plugin(state.policy):
            self._core.decide(AskPlan, policy=state.policy, snapshots=snapshots)
            state.plan_asked = cast(AskPlan, self._core.out[-1])
            return
        policy = find_policy(state.policy)
        try:
            plans = [policy(snapshot) for _, snapshot in snapshots]
        except Exception as error:  # whatever a policy raises; the last good plan stands
            state.plan_error = f"policy {state.policy} failed: {error!r}"
            return
        self._adopt(snapshots, plans)

    def _can_plan(self, ready: Sequence[str]) -> bool:
        """Whether there is anything to plan."""
        state = self._state
        if len(ready) > 1 or (state.elastic() and (ready or state.attempts)):
            return True
        if not state.cross_study:
            return False
        return bool(ready and state.attempts) or any_without_turns(state)

    def wake_at(self) -> float | None:
        """When a dirty plan should be made again although no slot is free; None if it need not."""
        state = self._state
        if not (state.dirty and (state.elastic() or state.cross_study)):
            return None
        ready = self._core.ready()
        useful = self._can_plan(ready) if state.cross_study else ready or state.attempts
        return self.due() if useful else None

    def accept_plans(self, cause: str, plans: Sequence[Plan] | None, reason: str = "") -> None:
        """Take in a user's policy's answer.

        If there is none, or a plan in it is impossible, the policy is set aside for a while.
        """
        pending = self._state.plan_asked
        if pending is None or pending.id != cause:
            raise Refused(f"{cause} is not the plan that was asked for")
        self._state.plan_asked = None
        if plans is None or len(plans) != len(pending.snapshots):
            self._state.plan_error = f"policy {pending.policy} {reason or 'gave no plan'}"
        else:
            self._adopt(pending.snapshots, plans)
        if self._state.plan_error:
            self._state.aside_until = self._core.at + POLICY_BACKOFF
            self._core.invalidate_plan()

    def _adopt(self, snapshots: Sequence[tuple[str, Snapshot]], plans: Sequence[Plan]) -> None:
        """Make these plans, one a snapshot, the standing ones; keep the old ones if any is
        impossible.
        """
        state = self._state
        for (_, snapshot), plan in zip(snapshots, plans, strict=True):
            if fault := find_fault(snapshot, plan):
                state.plan_error = f"policy {state.policy} {fault}"
                return
        state.plan_error = ""
        # Since a plugin was asked, some trials have begun and others have arrived.
        waiting = set(state.ready)
        order = [name for plan in plans for name in plan.order if name in waiting]
        known = set(order)
        state.ready = [*order, *(name for name in state.ready if name not in known)]
        state.widths, state.courses, state.windows = {}, {}, {}
        state.hold = [name for plan in plans for name in plan.hold if name in state.trials]
        state.plan_until = min((plan.until for plan in plans), default=math.inf)
        for (study, _), plan in zip(snapshots, plans, strict=True):
            state.widths |= {name: n for name, n in plan.widths.items() if name in state.trials}
            state.courses |= {name: c for name, c in plan.courses.items() if name in state.trials}
            state.windows |= {name: w for name, w in plan.windows.items() if name in state.trials}
            state.patient, state.packed = plan.patient, plan.packed
            holder = state.studies.get(study, state)
            holder.rule, holder.deadline = plan.rule, plan.deadline

    def _snapshots(
        self, ready: Sequence[str], free: Sequence[Member]
    ) -> tuple[tuple[str, Snapshot], ...]:
        """What is to be planned, by study.

        Without shares it is one snapshot of everything. With shares, each study has a snapshot of
        its trials and of its share of the devices.
        """
        state = self._state
        usable = sum(state.usable(name) for name in state.devices)
        empty_devices = max(
            0, sum(state.is_free(slot.device) for slot in free) - self._excess_trials()
        )
        at_work = [attempt.segment.trial for attempt in state.attempts.values()]
        competing = [study for study in state.studies.values() if study.share is not None]
        if not competing:
            snapshot = self._snapshot(
                state,
                ready,
                at_work,
                free_slots=len(free),
                free_devices=empty_devices,
                devices=usable,
            )
            return (("", replace(snapshot, beside=seats_beside(state))),)
        found = []
        device_counts = apportion([study.share or 0.0 for study in competing], usable)
        for study, devices in zip(competing, device_counts, strict=True):
            waiting = [name for name in ready if state.trials[name].study == study.spec.id]
            running = [name for name in at_work if state.trials[name].study == study.spec.id]
            if waiting or running:
                # Below 0 if it holds more than its share: its trials should then become narrower.
                held = sum(
                    len(state.trials[name].members) * state.attempts[state.trials[name].fence].part
                    for name in running
                )
                spare = devices - math.ceil(held - TOLERANCE)
                snapshot = self._snapshot(
                    study,
                    waiting,
                    running,
                    free_slots=max(0, spare),
                    free_devices=spare,
                    devices=devices,
                )
                found.append((study.spec.id, snapshot))
        return tuple(found)

    def _snapshot(
        self,
        holder: EngineState | StudyState,
        waiting: Sequence[str],
        running: Sequence[str],
        *,
        free_slots: int,
        free_devices: int,
        devices: int,
    ) -> Snapshot:
        names = {self._state.trials[name].study for name in (*waiting, *running)}
        studies = [self._state.studies[name] for name in names]
        probabilities = {
            k: v for study in studies for k, v in self._promotion_probabilities(study).items()
        }
        return Snapshot(
            self._core.at,
            self._candidates(waiting, probabilities),
            free_slots,
            self._candidates(running, probabilities),
            free_devices,
            devices=devices,
            resize=self._state.costs.resize,
            rule=holder.rule,
            deadline=holder.deadline,
            staged=all(staged(study.spec.strategy) for study in studies),
        )

    def _excess_trials(self) -> int:
        """How many trials share a device beyond its first: the next empty devices are for them."""
        return sum(max(0, len(each.at_work) - 1) for each in self._state.devices.values())

    def due(self) -> float:
        at = self._state.planned_at
        trials = len(self._state.ready) + len(self._state.attempts)
        due = (
            self._core.at
            if at is None
            else at + min(MAX_REPLAN_INTERVAL, REPLAN_INTERVAL_PER_TRIAL * trials)
        )
        return max(due, self._state.aside_until)

    def width(self, study: StudyState, trial: Trial) -> int:
        """The number of devices that the plan has ``trial`` use from its next epoch on."""
        widest = self._max_width(study, trial)
        if widest == 1:
            return 1
        if trial.losses > 1:
            return 1  # on one device it continues even if its members cannot reach each other
        return min(widest, self._state.widths.get(trial.id, 1))

    def _max_width(self, study: StudyState, trial: Trial) -> int:
        if study.spec.max_width == 1:
            return 1
        return min(study.spec.max_width, shards_of(study.spec, trial.params))

    def window(self, trial: Trial, devices: int) -> WindowPlan | None:
        """The width window that the plan has for ``trial``, as far as ``devices`` go.

        It is due once: the plan has it no more afterwards, whether it could be opened or not.
        """
        planned = self._state.windows.pop(trial.id, None)
        if planned is None or trial.losses:
            return None
        widths = tuple(width for width in planned.widths if width <= devices)
        return planned._replace(widths=widths) if len(widths) > 1 else None

    def has_window(self, trial: Trial) -> bool:
        """Whether the plan has a width window for ``trial`` before its next epoch."""
        return trial.id in self._state.windows

    def forget(self, trial: Trial) -> None:
        """Drop what the plan has for ``trial``, whose speeds are now known better."""
        self._state.widths.pop(trial.id, None)
        self._state.courses.pop(trial.id, None)
        self._core.invalidate_plan()

    def should_wait_for_plan(self, trial: Trial) -> bool:
        """Whether to delay a trial that the standing plan does not know until the next plan.

        The delay costs little if the trial's epochs are long compared with the time until the next
        plan is due. There is no delay where no plan will be made; ``Engine.wake_at`` asks for the
        tick.
        """
        state = self._state
        if not (state.dirty and state.elastic()):
            return False
        if not state.courses or trial.id in state.courses:
            return False
        seconds = self._state.epoch_seconds(trial)
        return seconds is not None and self.due() - self._core.at < MAX_WAIT_SHARE * seconds

    def max_epochs_at(self, trial: Trial, width: int) -> int:
        """For how many epochs at most the plan has ``trial`` run on ``width`` devices."""
        width_plan = self._state.courses.get(trial.id)
        if width_plan is not None and width_plan.epochs and width == width_plan.wide:
            return width_plan.epochs
        return max(1, trial.target - trial.epoch)

    def count_epoch(self, trial: Trial, width: int) -> None:
        """Count an accepted epoch on ``width`` devices: the wide part has one fewer."""
        width_plan = self._state.courses.get(trial.id)
        if width_plan is None or not width_plan.epochs or width != width_plan.wide:
            return
        width_plan = width_plan._replace(epochs=width_plan.epochs - 1)
        if width_plan.epochs == 0:
            width_plan = steady(width_plan.narrow)
            self._state.widths[trial.id] = width_plan.narrow
            self._core.invalidate_plan()
        self._state.courses[trial.id] = width_plan

    def _candidates(
        self, names: Iterable[str], probabilities: Mapping[str, float]
    ) -> tuple[Candidate, ...]:
        # In order of arrival, so that ties in a policy do not depend on the previous plan.
        trials = sorted((self._state.trials[name] for name in names), key=lambda t: t.since)
        names_of = {trial.study for trial in trials}
        ahead = {name: self._epochs_ahead(self._state.studies[name]) for name in names_of}
        ratios = {name: self._company_ratio(self._state.studies[name]) for name in names_of}
        return tuple(
            self._candidate(
                trial,
                probabilities.get(trial.id, 1.0),
                ahead=ahead[trial.study],
                ratio=ratios[trial.study],
            )
            for trial in trials
        )

    def _company_ratio(self, study: StudyState) -> float:
        """What an epoch of the study takes of a device's time, over what it takes alone.

        As if its trials that wait or run were trained together on all devices alike.
        """
        at_work = sum(each.study == study.spec.id for each in self._state.attempts.values())
        waiting = sum(self._state.trials[n].study == study.spec.id for n in self._state.ready)
        return planned_ratio(self._state, study, at_work + waiting)

    def _epochs_ahead(self, study: StudyState) -> int:
        """How many epochs the study is expected to train, if a share of 1/eta passes each rung."""
        plan = study.spec.strategy
        share = float(plan.max_epochs or 0) if plan.name == "pbt" else 0.0
        for k, (lower, upper) in enumerate(pairwise((0, *rungs_of(plan)))):
            share += (upper - lower) / plan.eta**k
        done = sum(trial.epoch for trial in self._core.trials_of(study))
        return max(self._core.epochs_ahead(study), int(study.spec.n_trials * share) - done)

    def _promotion_probabilities(self, study: StudyState) -> dict[str, float]:
        """The promotion probabilities of a study's trials; empty if the study has no rungs."""
        levels = rungs_of(study.spec.strategy)
        if len(levels) < 2:
            return {}
        sign = study.spec.sign
        curves = {name: self._state.trials[name].values for name in study.trials}
        scores = {name: {e: sign * v for e, v in of.items()} for name, of in curves.items()}
        return promotion_probabilities(scores, levels, study.spec.strategy.eta)

    def _candidate(
        self, trial: Trial, probability: float, *, ahead: int, ratio: float
    ) -> Candidate:
        """``ratio``: of its epochs on one device to those alone there.

        Whoever is wider is trained alone, and so gains less.
        """
        costs = self._state.costs
        study = self._state.studies[trial.study]
        widest = self._max_width(study, trial)
        features = self._state.features(trial)
        found = costs.expected(trial.study, trial.id, widest, features)
        own = costs.own(trial.study, trial.id)
        attempt = self._state.attempts[trial.fence] if trial.fence else None
        measuring = attempt is not None and bool(attempt.segment.widths)
        return Candidate(
            trial.id,
            trial.study,
            trial.epoch,
            max(trial.target, trial.epoch + 1),  # after its last epoch an objective has its end
            trial.since,
            _times(found.level if own is None else own.seconds, ratio),
            len(trial.members),
            widest,
            costs.speeds(trial.study),
            level=_times(found.level, ratio),
            shape=_beside_together(found.shape, ratio),
            deviation=found.deviation,
            boundary=0.0 if attempt is None else to_boundary(self._state, attempt, self._core.at),
            course=self._state.courses.get(trial.id),
            promise=probability,
            hope=_beside_together(found.hope, ratio),
            likely=_beside_together(found.likely, ratio),
            measured=() if own is None else tuple(sorted(own.means)),
            window=trial.window,
            cut_windows=trial.cut_windows,
            ahead=ahead,
            measuring=measuring,
            measurable=study.vain_windows < MAX_VAIN_WINDOWS,
            **self._among_studies(study, trial, attempt),
        )

    def _among_studies(
        self, study: StudyState, trial: Trial, attempt: Attempt | None
    ) -> dict[str, Any]:
        """The fields of a candidate for policies that order the trials of all studies."""
        if not self._state.cross_study:
            return {}
        waits = 0.0 if trial.queued_at is None else self._core.at - trial.queued_at
        if attempt is not None:
            waits = waited_in_seat(attempt, self._core.at)
        return {
            "arrived": study.created_at,
            "priority": study.spec.priority,
            "waited": trial.waited + max(0.0, waits),
            "service": trial.service,
            "movable": can_move(self._state, trial),
            "suspended": attempt is not None and not attempt.part,
        }

    def on_policy_chosen(self, event: PolicyChosen) -> None:
        if not is_plugin(event.policy):
            find_policy(event.policy)
        chosen = event.policy, event.cross_study
        if chosen == (self._state.policy, self._state.cross_study):
            raise Refused("this policy stands already")
        self._state.policy, self._state.cross_study = chosen
        for trial in self._state.trials.values():  # waiting is counted from now on
            waits = event.cross_study and trial.state is TrialState.WAITING
            trial.queued_at, trial.waited = self._core.at if waits else None, 0.0
        self._state.hold, self._state.plan_until, self._state.packed = [], math.inf, False
        self._state.plan_error, self._state.plan_asked, self._state.aside_until = "", None, 0.0
        self._state.planned_at = None
        self._core.invalidate_plan()


def _times(seconds: float | None, ratio: float) -> float | None:
    return None if seconds is None else seconds * ratio


def _beside_together(shape: Shape, ratio: float) -> Shape:
    """A shape whose seconds at widths above 1 are over those of ``ratio`` times an epoch alone."""
    if ratio == 1.0:
        return shape
    return tuple((width, each if width == 1 else each / ratio) for width, each in shape)
