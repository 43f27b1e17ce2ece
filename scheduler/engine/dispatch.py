"""Dispatch: free slots are given to waiting trials.

Theory of operation. A trial keeps its slots until it has reached its target epoch. If a segment
ends before the target, the next segment runs on the same slots, without another call of the policy
(``planning``). If slots stay free, the strategies of the running studies are asked for promotions
and new configurations.

A trial whose planned width (number of devices) differs from its present width is stopped at the end
of its epoch and continues at the new width. A member of a gang uses all slots of its device.
"""

from __future__ import annotations

import math

from ...profiling.costs.segment_costs import SegmentStart
from ..model.decisions import Cut, Dispatch, Member, Segment
from ..model.study import shards_of
from ..model.trial import Step, Trial
from ..planning.planning import Planning
from ..resources.fair_share import TOLERANCE, FairShare
from ..resources.giving_way import GivingWay
from ..resources.packing import Packing
from ..resources.segment_lengths import next_length, segment_start
from ..resources.slot_choice import members_of, warm_first
from ..resources.slots import devices_are_reserved_for, free_slots
from ..state.core import Core
from ..state.extensions import NO_VALUES, SegmentValues
from ..state.state import Attempt, StudyState
from .checkpoints import Checkpoints
from .proposals import Proposals

#: The most trials that may overtake a waiting trial for which no device in use has room.
MAX_PASSED = 4
#: If this number of waiting trials finds no room on devices in use, strategies are not asked for
#: further trials, although these could be smaller.
AHEAD = 2


class Dispatcher:
    """Gives free slots to trials, and pulls the strategies for more."""

    def __init__(
        self,
        core: Core,
        *,
        checkpoints: Checkpoints,
        shares: FairShare,
        planning: Planning,
        packing: Packing,
        giving_way: GivingWay,
        proposals: Proposals,
    ) -> None:
        self._core = core
        self._state = core.state
        self._checkpoints = checkpoints
        self._shares = shares
        self._planning = planning
        self._packing = packing
        self._giving_way = giving_way
        self._proposals = proposals

    def fill(self) -> None:
        """Give free slots to waiting trials, and pull the strategies while slots stay free.

        If devices are left over or missing afterwards, the widths of running trials change.
        """
        self._end_backoffs()
        competing = self._shares.competing()
        if competing or self._state.shared_at is not None:
            self._recompute_shares(competing)
        if self._state.cross_study:
            self._proposals.pull_next()
            self._planning.replan(self._free_slots())
        free, seats = self._free_slots(), self._core.extensions.seats.free()
        while free or seats:
            self._planning.replan(free)
            blocked = list[Trial]()
            if self._dispatch_waiting(free, seats, blocked):
                free, seats = self._free_slots(), self._core.extensions.seats.free()
            # Seats are for trials that wait: one more trial at work would make none faster, unless
            # trials gain by fused groups.
            elif not (
                (free and self._proposals.pull(self._to_draw(free, blocked)))
                or self._draw_for_seats()
            ):
                break
        if not free:
            self._cut_windows()
        self._giving_way.cut_held()
        self._packing.rebalance(free)
        self._resize(free)
        if competing:
            self._shares.release_unused(competing)

    def _recompute_shares(self, competing: list[StudyState]) -> None:
        """Compute the studies' shares of the slots.

        Studies below their share that have no waiting trial are pulled first.
        """
        idle = frozenset(s.spec.id for s in competing) - self._shares.studies_waiting()
        self._shares.recompute(competing, unbounded=idle)
        slots_held = self._shares.held()
        for study in competing:
            missing = math.ceil(study.share or 0.0) - math.ceil(
                slots_held[study.spec.id] - TOLERANCE
            )
            missing -= sum(ask.n for ask in study.asks.values())
            if study.spec.id in idle and missing > 0:
                self._proposals.pull_study(study, missing)
        self._shares.recompute(competing)
        if not competing:
            self._state.shared_at = None

    def _end_backoffs(self) -> None:
        """Let each device whose back-off time has passed take trials again.

        Until then, ``Engine.wake_at`` keeps asking for a tick.
        """
        for name, device in self._state.devices.items():
            if 0.0 < device.backoff_until <= self._core.at:
                device.backoff_until = 0.0
                self._core.invalidate_plan()
                self._core.note_device(name)

    def _to_draw(self, free: list[Member], blocked: list[Trial]) -> int:
        """Return the number of trials to ask the strategies for: one for each free slot.

        If some waiting trials have no room next to others (``blocked``), the number is one for each
        empty device. If an extension foresees which trials have room, a few more trials are asked
        for, since these may be smaller.
        """
        empty = sum(self._state.is_free(slot.device) for slot in free)
        if not blocked:
            return len(free)
        ahead = max(0, AHEAD - len(blocked)) if self._core.extensions.foresees() else 0
        return empty + min(len(free) - empty, ahead)

    def _draw_for_seats(self) -> bool:
        """Ask strategies for trials to train in free seats of lanes, next to running trials.

        Only studies that gain from training trials in fused groups are asked. Return True if a
        strategy entered any trial.
        """
        fused_groups, entered = self._core.extensions.fused_groups, False
        for study in list(self._state.studies.values()):
            seats = fused_groups.more(study) if study.runnable else 0
            if not seats:
                continue
            missing = seats - sum(ask.n for ask in study.asks.values())
            missing -= sum(self._state.trials[n].study == study.spec.id for n in self._state.ready)
            if missing > 0:
                pull = self._proposals.pull_study(study, missing, fused_groups.promoted(study))
                entered = bool(pull.group) or entered
        return entered

    def _dispatch_waiting(
        self, free: list[Member], seats: list[Member], blocked: list[Trial]
    ) -> bool:
        """Give free slots to waiting trials in their order; return True if any trial got a slot.

        A trial for which no slot is free takes one of the ``seats`` in lanes of running trials. A
        trial that no device in use has room for is added to ``blocked``. Up to ``MAX_PASSED`` later
        trials may overtake a blocked trial. After that, no other trial joins a device in use until
        the blocked trial runs. A plan that packs trials lets any number overtake until it decides
        that the blocked trial has waited long enough.
        """
        dispatched = False
        shared = self._state.shared_at is not None
        open_to = self._core.extensions.seats.open_to(seats, len(free))
        for name in self._shares.in_order() if shared else list(self._state.ready):
            if not (free or seats):
                break
            trial = self._state.trials[name]
            study = self._state.studies[trial.study]
            # It may have been proposed long ago, and callbacks may stop its study before it begins.
            is_withheld = (
                study.unheard and not trial.begun and len(free + seats) <= len(study.unheard)
            )
            if is_withheld or not study.runnable or self._planning.should_wait_for_plan(trial):
                continue
            open_seats = open_to(trial) if seats else ()
            joinable = [
                s
                for s in (*free, *(s for s in open_seats if s in seats))
                if s.device not in study.refused and not self._core.extensions.too_full(trial, s)
            ]
            if not joinable and self._state.packed and not self._state.patient:
                continue
            if not joinable:
                blocked.append(trial)
                if self._state.passed.get(name, 0) >= MAX_PASSED:
                    free[:] = [slot for slot in free if self._state.is_free(slot.device)]
                    seats.clear()
                continue
            if self._open_window(study, trial, free):
                dispatched = True
                continue
            width = self._planning.width(study, trial)
            members = members_of(self._state, self._core.extensions, trial, joinable, width)
            if not members and devices_are_reserved_for(self._state, trial):
                break  # first in the queue: devices are kept for it until they are enough
            if not members:
                continue
            names = {member.device for member in members}
            for slots in (free, seats):
                slots[:] = [slot for slot in slots if slot.device not in names]
            self._state.ready.remove(name)
            self._state.passed.pop(name, None)
            if not self._state.is_free(members[0].device):
                for each in blocked:
                    self._state.passed[each.id] = self._state.passed.get(each.id, 0) + 1
            self.dispatch(study, trial, members)
            dispatched = True
        return dispatched

    def _free_slots(self) -> list[Member]:
        return free_slots(self._state, self._core.extensions)

    def _open_window(self, study: StudyState, trial: Trial, free: list[Member]) -> bool:
        """Start a width window of a waiting trial if the plan has one. Return True if it starts.

        In a width window, a trial's speed is measured on several numbers of devices. The window
        takes its devices from ``free``, and no other trial may be on them.
        """
        if not self._planning.has_window(trial):
            return False
        usable = [slot for slot in free if slot.device not in study.refused]
        empty = [slot for slot in usable if slot.slot == 0 and self._state.is_free(slot.device)]
        window = self._planning.window(trial, len(empty))
        if window is None:
            return False
        waiting = len(self._core.ready()) - 1
        if not window.lasts and len(empty) - max(window.widths) < waiting:
            return False  # it would be cut at once: another study's trials wait
        members = warm_first(trial, empty, max(window.widths))
        names = {member.device for member in members}
        free[:] = [slot for slot in free if slot.device not in names]
        self._state.ready.remove(trial.id)
        attempt = self._send(
            study,
            trial,
            members,
            NO_VALUES,
            n=1,
            widths=window.widths,
            width_epochs=window.epochs,
        )
        attempt.lasts = window.lasts
        return True

    def _cut_windows(self) -> None:
        """End width windows if trials wait, because only devices without work may have a window.

        The newest windows are ended first, until there is a device for each waiting trial.
        """
        missing = len(self._core.ready())
        windows = [(f, each) for f, each in self._state.attempts.items() if each.segment.widths]
        for fence, attempt in sorted(windows, key=lambda each: (not each[1].cut, -each[0])):
            if missing <= 0:
                return
            if attempt.lasts and not attempt.cut:
                continue
            missing -= len(attempt.segment.members) - 1  # its own trial goes on with one
            if not attempt.cut:
                attempt.cut = True
                self._core.decide(Cut, trial=attempt.segment.trial, fence=fence)

    def _resize(self, free: list[Member]) -> None:
        """Cut each trial at the end of its epoch if the plan gives it another width."""
        if not self._state.elastic():
            return
        # A study that has nothing at work yet comes before wider trials, too.
        wide = sum(len(a.segment.members) - 1 for a in self._state.attempts.values())
        self._proposals.pull(wide - len(self._core.ready()))
        self._planning.replan(free)
        for fence, attempt in self._state.attempts.items():
            trial = self._state.trials[attempt.segment.trial]
            if attempt.cut or attempt.segment.widths or trial.epoch + 1 >= attempt.segment.last:
                continue
            width = self._planning.width(self._state.studies[trial.study], trial)
            if width != len(attempt.segment.members) or self._planning.has_window(trial):
                attempt.cut = True
                self._core.decide(Cut, trial=trial.id, fence=fence)

    def dispatch(
        self,
        study: StudyState,
        trial: Trial,
        members: tuple[Member, ...],
        *,
        at_once: bool = False,
    ) -> None:
        """Send the trial's next segment to ``members``.

        ``at_once``: True if the trial's previous segment has just ended on these members.
        """
        values, until = NO_VALUES, None
        if study.spec.id in self._core.extensions.by_study:
            values = self._core.extensions.segment(study, trial, members)
            until = self._core.extensions.until(study)
        start = SegmentStart.NEXT if at_once else segment_start(trial, members)
        seconds_left = math.inf if until is None else until - self._core.at
        length = next_length(
            self._state, trial, members, one_epoch=values.one_epoch, left=seconds_left
        )
        attempt = self._send(study, trial, members, values, n=length.epochs, until=until)
        attempt.start, attempt.length = start, length

    def _send(
        self,
        study: StudyState,
        trial: Trial,
        members: tuple[Member, ...],
        values: SegmentValues,
        *,
        n: int,
        widths: tuple[int, ...] = (),
        width_epochs: float = 0.0,
        until: float | None = None,
    ) -> Attempt:
        """Dispatch a segment of ``n`` epochs; if ``widths`` are given, have them measured instead.

        Measuring widths takes at most the time of ``width_epochs`` epochs. ``until`` is described
        at ``Dispatch``.
        """
        width = len(members)
        resized = not widths and len(trial.members) not in (0, width)
        self._core.move(study, trial, Step.DISPATCH)
        trial.dispatched_at = self._core.at
        self._state.fence += 1
        segment = Segment(trial.id, trial.epoch + 1, n, self._state.fence, members, widths)
        trial.fence = segment.fence
        if not widths:  # else its state is where it was
            trial.members = members
        decision = self._core.decision_id()
        attempt = Attempt(
            decision,
            study.spec.id,
            segment,
            self._core.at,
            began=self._core.at,
            resized=resized,
            undivided=values.undivided,
        )
        self._state.attempts[segment.fence] = attempt
        for member in members:
            device = self._state.devices[member.device]
            slots = range(device.device.slots) if width > 1 else (member.slot,)
            for slot in slots:
                device.fences[slot] = segment.fence
            self._core.touch(device)
        final = trial.epoch + n == trial.target
        copies: tuple[int, ...] = ()
        if not widths and study.spec.id in self._core.extensions.by_study:
            copies = self._core.extensions.copies(study, trial, segment)
        ext = values.ext
        first = self._state.devices[members[0].device].device
        if first.seats > 1 and width == 1:  # its trainer is told of its seat
            ext = {**ext, **self._core.extensions.seats.entered(attempt)}
        dispatch = Dispatch(
            id=decision,
            cause=self._state.seq,
            study=study.spec.id,
            number=trial.number,
            params=trial.params,
            segment=segment,
            shards=shards_of(study.spec, trial.params),
            parents=trial.parents,
            expect=trial.state_hash,
            holder=trial.holder,
            final=final,
            signature=trial.signature or study.signature,
            mtbf=self._state.faults.mtbf / width,
            origin=trial.begin,
            keys=None if trial.origin is None else trial.origin.keys,
            durable=final and not widths and self._checkpoints.target_must_be_durable(study, trial),
            system=values.system,
            width_epochs=width_epochs,
            copies=copies,
            until=until,
            suggestions=trial.suggestions,
            ext=ext,
        )
        self._core.out.append(dispatch)
        return attempt
