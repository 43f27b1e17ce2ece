"""Dispatch: which trial runs where, as free slots are given to waiting trials.

Theory of operation. A trial keeps its slots until its target (the *standing plan*): an epoch that
ends a segment short of the target is followed by the next segment on the same slots, without a call
of the policy (``planning``). For slots that stay free, the strategies of the running studies are
pulled for promotions and new configurations.

A trial whose planned width differs from the one it runs at is cut at the end of its epoch, and
continues at the new width. A member of a gang has a whole device, with all its slots.
"""

from __future__ import annotations

import math

from ..model.decisions import Cut, Dispatch, Member, Segment
from ..model.events import Planned, PolicyFailed
from ..model.study import shards_of
from ..model.trial import Step, Trial
from ..policies.segments import segment_length
from ..resources.fair_share import FairShare
from ..resources.packing import Packing
from ..resources.slots import are_kept_for, places
from ..state.core import Core
from ..state.state import Attempt, StudyState
from ..tuning.tuning import Tuning
from .checkpoints import Checkpoints
from .planning import Planning
from .proposals import Proposals


class Dispatcher:
    """Gives free slots to trials, and pulls the strategies for more."""

    def __init__(
        self,
        core: Core,
        *,
        checkpoints: Checkpoints,
        shares: FairShare,
        planning: Planning,
        tuning: Tuning,
        packing: Packing,
        proposals: Proposals,
    ) -> None:
        self._core = core
        self._state = core.state
        self._checkpoints = checkpoints
        self._shares = shares
        self._planning = planning
        self._tuning = tuning
        self._packing = packing
        self._proposals = proposals

    def fill(self) -> None:
        """Give free slots to waiting trials, and pull the strategies while slots stay free.

        Devices that are left over, or missing, then change the widths of running trials.
        """
        self._end_rests()
        rivals = self._shares.rivals()
        if rivals or self._state.shared_at is not None:
            self._share(rivals)
        free = places(self._state)
        while free:
            self._planning.replan(free)
            if self._place(free):
                free = places(self._state)
            elif not self._proposals.pull(len(free)):
                break
        self._packing.even_out(free)
        self._resize(free)
        if rivals:
            self._shares.release_unused(rivals)

    def _share(self, rivals: list[StudyState]) -> None:
        """Compute the studies' shares.

        A study below its share that has no waiting trial is pulled first.
        """
        idle = frozenset(s.spec.id for s in rivals) - self._shares.studies_waiting()
        self._shares.recompute(rivals, greedy=idle)
        held = self._shares.held()
        for study in rivals:
            lacking = math.ceil(study.share or 0.0) - held[study.spec.id]
            lacking -= sum(ask.n for ask in study.asks.values())
            if study.spec.id in idle and lacking > 0:
                self._proposals.pull_study(study, lacking)
        self._shares.recompute(rivals)
        if not rivals:
            self._state.shared_at = None

    def _end_rests(self) -> None:
        """End the rests that are over. Until then ``Engine.wake_at`` keeps asking for a tick."""
        for name, device in self._state.devices.items():
            if 0.0 < device.backoff_until <= self._core.at:
                device.backoff_until = 0.0
                self._core.plan_anew()
                self._core.note_device(name)

    def _place(self, free: list[Member]) -> bool:
        """Give free slots to waiting trials in their order; returns whether any got one.

        When a trial may join no device that is in use, no later trial may either. Otherwise it
        could be overtaken for ever.
        """
        placed = False
        shared = self._state.shared_at is not None
        for name in self._shares.in_order() if shared else list(self._state.ready):
            if not free:
                break
            trial = self._state.trials[name]
            study = self._state.studies[trial.study]
            if not study.works or self._planning.waits_for_plan(trial):
                continue
            fits = [
                s for s in free if s.device not in study.refused and self._packing.fits(trial, s)
            ]
            if not fits:
                free[:] = [place for place in free if self._state.is_free(place.device)]
                continue
            members = self._members(trial, fits, self._planning.width(study, trial))
            if not members and are_kept_for(self._state, trial):
                break  # first in line: devices are kept for it until they are enough
            if not members:
                continue
            taken = {member.device for member in members}
            free[:] = [place for place in free if place.device not in taken]
            self._state.ready.remove(name)
            self.dispatch(study, trial, members)
            placed = True
        return placed

    def _members(self, trial: Trial, free: list[Member], width: int) -> tuple[Member, ...]:
        """``width`` of the free slots, or as many as there are.

        Devices that have the trial's state in memory come first. With a width plan, a trial begins
        at its wide or narrow width, or not at all.
        """
        whole = [slot for slot in free if slot.slot == 0 and self._state.is_free(slot.device)]
        course = self._state.courses.get(trial.id)
        if course is not None and len(whole) < width:
            width = course.narrow
            if width > max(1, len(whole)):
                if self._state.shared_at is None:
                    return ()
                width = max(1, len(whole))  # other studies would take the devices it waits for
        if width > 1 and len(whole) > 1:
            warm = [member.device for member in trial.members]
            names = [slot.device for slot in whole]
            first = [name for name in warm if name in names]
            chosen = [*first, *(name for name in names if name not in first)][:width]
            return tuple(Member(name, 0) for name in chosen)
        return (self._slot(trial, free),)

    def _slot(self, trial: Trial, free: list[Member]) -> Member:
        """The slot where the trial's state is in memory, else the first one.

        An empty device is preferred unless the trial would have to start over there.
        """
        if self._state.studies[trial.study].spec.contract != "objective":
            free = [place for place in free if self._state.is_free(place.device)] or free
        devices = [place.device for place in free]
        for member in trial.members:
            fences = self._state.devices[member.device].fences if member.device in devices else []
            # A device that left may have come back with fewer slots.
            if member.slot < len(fences) and not fences[member.slot]:
                return member
        return free[0]

    def _resize(self, free: list[Member]) -> None:
        """Cut the trials that the plan gives another width at the end of their epoch."""
        if not self._state.elastic():
            return
        # A study that has nothing at work yet comes before wider trials, too.
        wide = sum(len(a.segment.members) - 1 for a in self._state.attempts.values())
        self._proposals.pull(wide - len(self._core.ready()))
        self._planning.replan(free)
        for fence, attempt in self._state.attempts.items():
            trial = self._state.trials[attempt.segment.trial]
            if attempt.cut or trial.epoch + 1 >= attempt.segment.last:
                continue
            if self._planning.width(self._state.studies[trial.study], trial) != len(
                attempt.segment.members
            ):
                attempt.cut = True
                self._core.decide(Cut, trial=trial.id, fence=fence)

    def dispatch(self, study: StudyState, trial: Trial, members: tuple[Member, ...]) -> None:
        n = segment_length(
            self._state.epoch_seconds(trial),
            self._state.costs.segment_overhead,
            trial.target - trial.epoch,
            study.spec.max_segment,
        )
        orders = self._tuning.orders(study, trial, members)
        n = 1 if orders.whole else min(n, self._planning.epochs_at(trial, len(members)))
        resized = len(trial.members) not in (0, len(members))
        self._core.move(study, trial, Step.DISPATCH)
        trial.dispatched_at = self._core.at
        self._state.fence += 1
        segment = Segment(trial.id, trial.epoch + 1, n, self._state.fence, members)
        trial.fence = segment.fence
        trial.members = members
        for member in members:
            device = self._state.devices[member.device]
            slots = range(device.device.slots) if len(members) > 1 else (member.slot,)
            for slot in slots:
                device.fences[slot] = segment.fence
            self._core.touch(device)
        dispatch = Dispatch(
            id=self._core.decision_id(),
            cause=self._state.seq,
            study=study.spec.id,
            number=trial.number,
            params=trial.params,
            segment=segment,
            shards=shards_of(study.spec, trial.params),
            parents=trial.parents,
            expect=trial.state_hash,
            holder=trial.holder,
            final=segment.last == trial.target,
            signature=trial.signature or study.signature,
            mtbf=self._state.faults.mtbf / len(segment.members),
            origin=trial.begin,
            durable=self._checkpoints.must_be_durable(study, trial, segment.last),
            system=orders.system,
            probe=orders.probe,
            probe_epochs=orders.epochs,
            profile=orders.profile,
        )
        self._state.attempts[segment.fence] = Attempt(
            dispatch.id, study.spec.id, segment, self._core.at, began=self._core.at, resized=resized
        )
        self._core.out.append(dispatch)

    def on_planned(self, event: Planned) -> None:
        self._planning.take_plans(event.cause, event.plans)
        self.fill()

    def on_policy_failed(self, event: PolicyFailed) -> None:
        self._planning.take_plans(event.cause, None, event.reason)
        self.fill()
