"""The standing plan: when a new one is made, and how the engine follows it.

Theory of operation. The *standing plan* is the policy's last good plan, which the engine follows.
It becomes *dirty* when its input changes: a trial begins to wait or ends, a device comes or goes,
an estimate changes, or the wide part of a width plan ends. A dirty plan is replaced when a slot is
to be filled, but not before a time since the last plan that grows with the number of trials
(``REPLAN_INTERVAL_PER_TRIAL``) up to ``MAX_REPLAN_INTERVAL``. Until then, new trials queue in order
of arrival. A policy that orders the trials of all studies is also asked when a trial waits and no
slot is free, because running trials may have to give way. The engine counts the epochs of width
plans: each accepted wide epoch leaves one fewer, and after the last one the trial becomes narrow.
If a policy fails, the standing plan remains.

A user's policy is not part of the engine, so that a replay does not depend on it. Like a sampler it
is asked by a decision (``AskPlan``), and its answer is an event. Until the answer arrives, slots
are given by the standing plan. A user's policy that fails, or whose plan is impossible, is not
asked again for ``POLICY_BACKOFF`` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from ..model.decisions import AskPlan, Member
from ..model.events import Planned, PolicyChosen, PolicyFailed
from ..model.snapshot import POLICY_BACKOFF, Plan, Snapshot, WindowPlan, find_fault, steady
from ..model.trial import Trial, TrialState
from ..policies.names import is_plugin
from ..policies.registry import find_policy
from ..resources.slots import free_slots
from ..state.core import Core, Refused
from ..state.state import StudyState, Waits
from .snapshots import Snapshots, max_width

#: Upper bound of the interval between two plans (seconds), which applies with many trials.
MAX_REPLAN_INTERVAL = 1.0

#: Interval between two plans (seconds), per waiting or running trial: the fewer trials, the sooner
#: the next plan.
REPLAN_INTERVAL_PER_TRIAL = 0.02

#: The longest time that a new trial waits for the next plan, as a part of the time of its epoch.
MAX_WAIT_SHARE = 0.1


class Planning:
    """Keeps the standing plan, and answers questions about each trial in it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state
        self._snapshots = Snapshots(core)

    def replan(self, free: list[Member]) -> None:
        state = self._state
        if not (state.dirty and self.due() <= self._core.at):
            return
        ready = self._core.ready()
        if not self._can_plan(ready):
            return
        state.dirty = False
        state.planned_at = self._core.at
        snapshots = self._snapshots.of(ready, free)
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
        """Return True if a plan could change anything for the ``ready`` or the running trials."""
        state = self._state
        if len(ready) > 1 or (state.elastic() and (ready or state.attempts)):
            return True
        if not state.cross_study:
            return False
        return bool(ready and state.attempts) or self._any_idle()

    def reconsider(self) -> None:
        """Make a new plan, if one is due, before a trial continues in its slot.

        Call this only under a policy that orders the trials of all studies.
        """
        if self._state.ready or self._any_idle():
            if self._core.at >= self._state.plan_until:
                self._core.invalidate_plan()
            self.replan(free_slots(self._state, self._core.extensions))

    def _any_idle(self) -> bool:
        """Return True if any attempt has no part of its lane's time at present."""
        return any(not each.part for each in self._state.attempts.values())

    def wake_at(self) -> float | None:
        """Return when to replace a dirty plan although no slot is free; None if not needed."""
        state = self._state
        if not (state.dirty and (state.elastic() or state.cross_study)):
            return None
        ready = self._core.ready()
        useful = self._can_plan(ready) if state.cross_study else ready or state.attempts
        return self.due() if useful else None

    def on_planned(self, event: Planned) -> None:
        self._accept_plans(event.cause, event.plans)

    def on_policy_failed(self, event: PolicyFailed) -> None:
        self._accept_plans(event.cause, None, event.reason)

    def _accept_plans(self, cause: str, plans: Sequence[Plan] | None, reason: str = "") -> None:
        """Adopt the plans with which a user's policy answered ``AskPlan``.

        If the number of plans is wrong, or one of them is impossible, the policy is not asked again
        for ``POLICY_BACKOFF`` seconds. Raises ``Refused`` if ``cause`` is not the unanswered
        ``AskPlan``.
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
        self._core.offer_slots()

    def _adopt(self, snapshots: Sequence[tuple[str, Snapshot]], plans: Sequence[Plan]) -> None:
        """Make these plans, one for each snapshot, the standing plan.

        If one of them is impossible, the old plan remains, and ``plan_error`` says why.
        """
        state = self._state
        for (_, snapshot), plan in zip(snapshots, plans, strict=True):
            if fault := find_fault(snapshot, plan):
                state.plan_error = f"policy {state.policy} {fault}"
                return
        state.plan_error = ""
        # Since a user's policy was asked, trials may have begun or arrived.
        waiting = set(state.ready)
        order = [name for plan in plans for name in plan.order if name in waiting]
        ordered = set(order)
        state.ready = [*order, *(name for name in state.ready if name not in ordered)]
        state.widths, state.courses, state.windows = {}, {}, {}
        state.hold = [name for plan in plans for name in plan.hold if name in state.trials]
        state.plan_until = min((plan.until for plan in plans), default=math.inf)
        for (study, _), plan in zip(snapshots, plans, strict=True):
            state.widths |= {name: n for name, n in plan.widths.items() if name in state.trials}
            state.courses |= {name: c for name, c in plan.courses.items() if name in state.trials}
            state.windows |= {name: w for name, w in plan.windows.items() if name in state.trials}
            state.patient, state.packed = plan.patient, plan.packed
            if study in state.studies:
                state.own_rules[study] = plan.rule, plan.deadline
            else:
                state.rule, state.deadline = plan.rule, plan.deadline

    def due(self) -> float:
        at = self._state.planned_at
        trials = len(self._state.ready) + len(self._state.attempts)
        at_latest = (
            self._core.at
            if at is None
            else at + min(MAX_REPLAN_INTERVAL, REPLAN_INTERVAL_PER_TRIAL * trials)
        )
        return max(at_latest, self._state.aside_until)

    def width(self, study: StudyState, trial: Trial) -> int:
        """Return the number of devices that ``trial`` uses from its next epoch on, by the plan."""
        if study.spec.max_width == 1:
            return 1
        if trial.losses > 1:
            return 1  # on one device it continues even if its members cannot reach each other
        if trial.branched and not trial.parents and (not trial.holder or trial.losses):
            return 1  # one process computes the state it starts from; a gang would only wait
        return min(max_width(study, trial), self._state.widths.get(trial.id, 1))

    def window(self, trial: Trial, devices: int) -> WindowPlan | None:
        """Return ``trial``'s planned width window, limited to ``devices`` devices, or None.

        A window is tried once: this call removes it from the plan, even if it returns None because
        too few devices are free or the trial's attempts were lost.
        """
        window = self._state.windows.pop(trial.id, None)
        if window is None or trial.losses:
            return None
        widths = tuple(width for width in window.widths if width <= devices)
        return window._replace(widths=widths) if len(widths) > 1 else None

    def has_window(self, trial: Trial) -> bool:
        """Return True if the plan has a width window for ``trial`` before its next epoch."""
        return trial.id in self._state.windows

    def forget(self, trial: Trial) -> None:
        """Drop the planned widths of ``trial``, because its width window has ended since then."""
        self._state.widths.pop(trial.id, None)
        self._state.courses.pop(trial.id, None)
        self._core.invalidate_plan()

    def should_wait_for_plan(self, trial: Trial) -> bool:
        """Return True if a trial that is new to the standing plan should wait for the next plan.

        It should if its epochs are long compared with the time until the next plan is due, since
        the delay then costs little. It should not if no new plan will be made. ``Engine.wake_at``
        asks for a ``Tick`` at the time of the next plan.
        """
        state = self._state
        if not (state.dirty and state.elastic()):
            return False
        if not state.courses or trial.id in state.courses:
            return False
        seconds = self._state.epoch_seconds(trial)
        return seconds is not None and self.due() - self._core.at < MAX_WAIT_SHARE * seconds

    def count_epoch(self, trial: Trial, width: int) -> None:
        """Count an accepted epoch, at ``width`` devices, of a trial with a width plan.

        If that is the wide width of the plan, one wide epoch fewer is left. After the last wide
        epoch the trial gets its narrow width.
        """
        width_plan = self._state.courses[trial.id]
        if not width_plan.epochs or width != width_plan.wide:
            return
        width_plan = width_plan._replace(epochs=width_plan.epochs - 1)
        if width_plan.epochs == 0:
            width_plan = steady(width_plan.narrow)
            self._state.widths[trial.id] = width_plan.narrow
            self._core.invalidate_plan()
        self._state.courses[trial.id] = width_plan

    def on_policy_chosen(self, event: PolicyChosen) -> None:
        if not is_plugin(event.policy):
            find_policy(event.policy)
        state, shared = self._state, not self._state.cross_study
        choice = (
            event.policy,
            event.cross_study,
            state.fill_at_end or event.fill_at_end,
            state.keep_failed or event.keep_failed,
            state.keep_widths or event.keep_widths,
        )
        stands = (
            state.policy,
            state.cross_study,
            state.fill_at_end,
            state.keep_failed,
            state.keep_widths,
        )
        if choice == stands:
            raise Refused("this policy stands already")
        (
            state.policy,
            state.cross_study,
            state.fill_at_end,
            state.keep_failed,
            state.keep_widths,
        ) = choice
        for trial in state.trials.values():  # waiting is counted from now on
            waits = event.cross_study and trial.state is TrialState.WAITING
            if waits or trial.id in state.waits:
                trial_waits = state.waits.setdefault(trial.id, Waits())
                trial_waits.queued_at, trial_waits.waited = self._core.at if waits else None, 0.0
        state.hold, state.plan_until, state.packed = [], math.inf, False
        state.plan_error, state.plan_asked, state.aside_until = "", None, 0.0
        state.planned_at = None
        self._core.invalidate_plan()
        if shared == event.cross_study:  # shares begin or end
            self._core.offer_slots()
