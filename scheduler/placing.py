"""Who runs where: waiting trials, free slots, and the end of a study.

Theory of operation. A trial holds its slots until its target (the *standing plan*): an epoch that
ends a segment short of it is followed by the next segment on the same slots, without calling a
policy (``planning``). Slots that stay free pull the strategies of the running studies for
promotions and new configurations.

A trial whose width in the plan is another than the one it runs at is cut at the end of its epoch,
and goes on at the new one. A member of a gang has a whole device to itself, all slots of it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

from .decisions import Ask, Cut, Dispatch, Finish, Member, Release, Segment
from .packing import Packing
from .places import are_kept_for, places
from .segments import segment_length
from .state import Attempt, StudyState
from .strategy import Entry, Fork, Pull
from .study import OVER, shards_of
from .trial import FINAL, Step, Trial, TrialState

#: Samplers whose proposals do not depend on results, so they may be asked for ahead.
ORDER_FREE = frozenset({"grid", "random", "qmc"})


class Placing(Packing):
    """Gives free slots to trials, and pulls the strategies for more."""

    def _enter(self, study: StudyState, group: tuple[Entry | Fork, ...]) -> None:
        for entry in group:
            if isinstance(entry, Fork):
                self._fork(study, entry)
                continue
            trial = self.state.trials[entry.trial]
            if trial.state in FINAL:
                continue
            trial.target = entry.epochs
            self._move(study, trial, Step.ENTER)
            self._wait(trial)

    def _fork(self, study: StudyState, fork: Fork) -> None:
        """Stop the trial, and ask for the configuration of the one that goes on in its stead."""
        trial = self.state.trials[fork.trial]
        self._move(study, trial, Step.STOP)
        self._over(study, trial)
        self._decide(Release, trial=trial.id)
        self._ask(study, 1, fork=fork)

    def _wait(self, trial: Trial, *, first: bool = False) -> None:
        if first:
            # Interrupted, not new: it keeps the place in line that it once waited for.
            self.state.ready.insert(0, trial.id)
        else:
            trial.since = self._at
            self.state.ready.append(trial.id)
        self.state.dirty = True

    def _fill(self) -> None:
        """Give free slots to waiting trials, and pull the strategies while slots stay free.

        What is left after that, or lacking, changes the widths of those that run.
        """
        self._end_rests()
        rivals = self._rivals()
        if rivals or self.state.shared_at is not None:
            self._share(rivals)
        free = places(self.state)
        while free:
            self._replan(free)
            if self._place(free):
                free = places(self.state)
            elif not self._pull(len(free)):
                break
        self._even_out(free)
        self._resize(free)
        if rivals:
            self._forgo(rivals)

    def _share(self, rivals: list[StudyState]) -> None:
        """Work out the studies' shares; those below theirs of which nothing waits are pulled."""
        idle = frozenset(s.spec.id for s in rivals) - self._studies_that_wait()
        self._divide(rivals, greedy=idle)
        held = self._held()
        for study in rivals:
            lacking = math.ceil(study.share or 0.0) - held[study.spec.id]
            lacking -= sum(ask.n for ask in study.asks.values())
            if study.spec.id in idle and lacking > 0:
                self._pull_study(study, lacking)
        self._divide(rivals)
        if not rivals:
            self.state.shared_at = None

    def _end_rests(self) -> None:
        """A rest ends here and nowhere else: until then the engine goes on asking for a tick."""
        for name, device in self.state.devices.items():
            if 0.0 < device.backoff_until <= self._at:
                device.backoff_until = 0.0
                self.state.dirty = True
                self._note_device(name)

    def _place(self, free: list[Member]) -> bool:
        """Give the free places to the trials that wait, in their order; True if any got one.

        Behind a trial that may join nobody no other one does, else it would be overtaken for ever.
        """
        placed = False
        shared = self.state.shared_at is not None
        for name in self._by_share() if shared else list(self.state.ready):
            if not free:
                break
            trial = self.state.trials[name]
            study = self.state.studies[trial.study]
            if not study.works or self._waits_for_plan(trial):
                continue
            fits = [s for s in free if s.device not in study.refused and self._fits(trial, s)]
            if not fits:
                free[:] = [place for place in free if self.state.is_free(place.device)]
                continue
            members = self._members(trial, fits, self._width(study, trial))
            if not members and (self.state.shuffle or are_kept_for(self.state, trial)):
                break  # first in line: devices are kept for it until they are enough
            if not members:
                continue
            taken = {member.device for member in members}
            free[:] = [place for place in free if place.device not in taken]
            self.state.ready.remove(name)
            self._dispatch(study, trial, members)
            placed = True
        return placed

    def _members(self, trial: Trial, free: list[Member], width: int) -> tuple[Member, ...]:
        """``width`` of the free slots, or as many as there are; those where it is warm go first.

        Under a shuffled plan none where there are not enough. Under one with courses a trial that
        begins has its course's wide or narrow width, or none.
        """
        whole = [slot for slot in free if slot.slot == 0 and self.state.is_free(slot.device)]
        course = self.state.courses.get(trial.id)
        if course is not None and len(whole) < width:
            width = course.narrow
            if width > max(1, len(whole)):
                if self.state.shared_at is None:
                    return ()
                width = max(1, len(whole))  # others would take what it waits for
        if width > 1 and (len(whole) >= width or (len(whole) > 1 and not self.state.shuffle)):
            warm = [member.device for member in trial.members]
            names = [slot.device for slot in whole]
            first = [name for name in warm if name in names]
            chosen = [*first, *(name for name in names if name not in first)][:width]
            return tuple(Member(name, 0) for name in chosen)
        if width > 1 and self.state.shuffle:
            return ()
        return (self._slot(trial, free),)

    def _slot(self, trial: Trial, free: list[Member]) -> Member:
        """Where it is warm, else the first; on an empty device if it need not begin anew there."""
        if self.state.studies[trial.study].spec.contract != "objective":
            free = [place for place in free if self.state.is_free(place.device)] or free
        devices = [place.device for place in free]
        for member in trial.members:
            if (
                member.device in devices
                and not self.state.devices[member.device].fences[member.slot]
            ):
                return member
        return free[0]

    def _pull(self, free: int) -> bool:
        """Ask the strategies for work for ``free`` slots; True if trials entered."""
        free -= sum(ask.n for s in self.state.studies.values() for ask in s.asks.values())
        entered = False
        for study in list(self.state.studies.values()):
            if free <= 0:
                break
            if not study.works:
                continue
            pull = self._pull_study(study, free)
            entered = entered or bool(pull.group)
            free -= len(pull.group) + pull.ask
        return entered

    def _pull_study(self, study: StudyState, free: int) -> Pull:
        ahead = study.spec.n_trials if study.spec.sampler in ORDER_FREE else 0
        pull = study.strategy.pull(free, ahead)
        self._enter(study, pull.group)
        if pull.ask:
            self._ask(study, pull.ask)
        return pull

    def _ask(self, study: StudyState, n: int, fork: Fork | None = None) -> None:
        """Ask for configurations, the user's own first; for that of a fork, which has a source."""
        enqueued = () if fork else tuple(study.enqueued[:n])
        del study.enqueued[: len(enqueued)]
        ask = Ask(
            id=self._decision_id(),
            cause=self.state.seq,
            study=study.spec.id,
            n=n,
            index=study.next_ask,
            enqueued=enqueued,
            fork=fork,
        )
        study.asks[ask.index] = ask
        study.next_ask += 1
        self._out.append(ask)

    def _resize(self, free: list[Member]) -> None:
        """Have the trials that the plan gives another width close at the end of their epoch."""
        if not self.state.elastic():
            return
        # A study that has nothing at work yet comes before width, too.
        wide = sum(len(a.segment.members) - 1 for a in self.state.attempts.values())
        self._pull(wide - len(self._ready()))
        self._replan(free)
        if self.state.shuffle:
            return  # every segment of theirs is one epoch
        for fence, attempt in self.state.attempts.items():
            trial = self.state.trials[attempt.segment.trial]
            if attempt.cut or trial.epoch + 1 >= attempt.segment.last:
                continue
            if self._width(self.state.studies[trial.study], trial) != len(attempt.segment.members):
                attempt.cut = True
                self._decide(Cut, trial=trial.id, fence=fence)

    def _dispatch(self, study: StudyState, trial: Trial, members: tuple[Member, ...]) -> None:
        n = segment_length(
            self.state.epoch_seconds(trial),
            self.state.costs.segment_overhead,
            trial.target - trial.epoch,
            study.spec.max_segment,
        )
        orders = self._orders(study, trial, members)
        n = 1 if orders.whole else min(n, self._epochs_at(trial, len(members)))
        resized = len(trial.members) not in (0, len(members))
        self._move(study, trial, Step.DISPATCH)
        trial.dispatched_at = self._at
        self.state.fence += 1
        segment = Segment(trial.id, trial.epoch + 1, n, self.state.fence, members)
        trial.fence = segment.fence
        trial.members = members
        for member in members:
            device = self.state.devices[member.device]
            slots = range(device.device.slots) if len(members) > 1 else (member.slot,)
            for slot in slots:
                device.fences[slot] = segment.fence
            self._touch(device)
        dispatch = Dispatch(
            id=self._decision_id(),
            cause=self.state.seq,
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
            mtbf=self.state.faults.mtbf / len(segment.members),
            origin=trial.begin,
            durable=self._to_be_durable(study, trial, segment.last),
            system=orders.system,
            probe=orders.probe,
            probe_epochs=orders.epochs,
            profile=orders.profile,
        )
        self.state.attempts[segment.fence] = Attempt(
            dispatch.id, study.spec.id, segment, self._at, began=self._at, resized=resized
        )
        self._out.append(dispatch)

    def _settle(self, study: StudyState) -> None:
        """A study without active trials and open asks either goes on or is over."""
        if study.status in OVER or study.active or study.asks or study.spec.contract == "ask":
            return
        free = max(1, len(places(self.state)))
        pull = self._pull_study(study, free)
        if study.held_back and not pull.group and not pull.ask:
            spec = replace(study.spec, n_trials=study.held_back)
            study.strategy, study.held_back = cast(Any, self._strategies(spec)), 0
            pull = self._pull_study(study, free)
        if not pull.group and not pull.ask:
            self._finish(study, "complete" if study.succeeded else "failed")

    def _say_exhausted(self, study: StudyState) -> None:
        """That a grid had fewer points than trials were asked for."""
        there, spec = len(study.trials), study.spec
        if spec.sampler == "grid" and there < spec.n_trials and study.status == "complete":
            study.message = study.message or f"the grid has {there} points, and all were tried"

    def _finish(self, study: StudyState, status: str) -> None:
        for trial in self._trials_of(study):
            if trial.state in (TrialState.PAUSED, TrialState.PROPOSED):
                self._move(study, trial, Step.STOP)
                self._decide(Release, trial=trial.id)
        study.status, study.finished_at = status, self._at
        self._say_exhausted(study)
        if status == "failed" and not study.message:
            study.message = "every trial failed"
        self._end(study)
        self._touch_study(study)
        self._decide(Finish, study=study.spec.id, status=status)
        # The ledger keeps what a finished study was; the engine only that its id is taken.
        for name in study.trials:
            self.state.trials.pop(name, None)
            self.state.courses.pop(name, None)
        self.state.costs.forget_study(study.spec.id)
        self.state.sharing.forget_study(study.spec.id)
        self.state.studies.pop(study.spec.id)
        self.state.finished[study.spec.id] = study.spec.name
