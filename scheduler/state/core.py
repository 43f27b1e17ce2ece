"""The core of the engine: the state, the current event, and the decisions and changes that follow.

The core does the bookkeeping for the other parts of the engine: it moves trials along their
transition table, closes attempts and notes changes. It makes no decision by itself. A part changes
only the state that it owns; state that several parts change is changed by a method of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...base.draws import digest_of
from ..model.decisions import Cut, Decision, Revoke
from ..model.events import Event
from ..model.study import Params, StudySpec
from ..model.trial import FINAL, Step, Trial, TrialState
from ..model.writing import Suggestion
from ..strategies.registry import AnyStrategy
from .extensions import Extensions
from .slot_time import settle, slot_seconds
from .spending import charged
from .state import Attempt, Changes, DeviceRecord, DeviceState, EngineState, StudyState, Waits

#: Number of a trial's last steps that are kept in memory for exceptions.
STORY_KEPT = 30

_ACTIVE = frozenset({TrialState.PROPOSED, TrialState.WAITING, TrialState.RUNNING})
_SUCCESSES = frozenset({Step.REACH, Step.FINISH, Step.PRUNE})


class Refused(Exception):
    """An error that refuses an event, because it is late, repeated or about something unknown."""


class Unfit(Refused):
    """An error that refuses a report which does not fit its trial's accepted reports.

    The report belongs to other parameters, or follows a report that was lost. So its attempt cannot
    continue.
    """


class Core:
    """The state, the current event, and the decisions and changes that follow from it."""

    def __init__(self, state: EngineState, strategies: Callable[[StudySpec], AnyStrategy]) -> None:
        self.state = state
        self.strategies = strategies
        self.out: list[Decision] = []
        self.changes = Changes()
        self.at = 0.0
        self.event = Event(at=0.0)
        #: Devices with several slots on which this event started or ended an attempt.
        self.touched: set[str] = set()
        #: Studies with a trial that changed its state or has a new epoch, in order.
        self.moved: dict[str, None] = {}
        #: Studies with a trial whose parameters differ from those it was proposed with.
        self.reparametrised: set[str] = set()
        self.extensions = Extensions(state.studies)
        #: Functions of extensions to call once the event is handled, before slots are given out.
        self.after: dict[Callable[[], None], None] = {}
        #: True if free slots are to be given to trials when the event ends.
        self.slots_offered = False
        #: Function that gives free slots to trials at once, as in ledgers of 0.2. The engine sets
        #: it.
        self.fill: Callable[[], None] = lambda: None

    def begin(self, event: Event) -> None:
        """Count a new event, before it is handled, so that decisions can name its number."""
        self.out = []
        self.at = event.at
        self.event = event
        self.touched.clear()
        self.moved.clear()
        self.state.seq += 1

    def undo(self) -> None:
        """Undo ``begin`` for an event that was refused, and do nothing at the event's end."""
        self.state.seq -= 1
        self.after.clear()
        self.slots_offered = False

    def take_changes(self) -> Changes:
        """Return the changes since the last call."""
        changes, self.changes = self.changes, Changes()
        return changes

    def move(self, study: StudyState, trial: Trial, step: Step) -> None:
        """Move a trial to the state to which ``step`` leads, and update all counts of its study.

        Raises ``IllegalTransition`` if the trial's state has no such step.
        """
        before = trial.state
        trial.step(step)
        study.active += (trial.state in _ACTIVE) - (before in _ACTIVE)
        kind = type(self.event).__name__
        cause = f" (answers {self.event.cause})" if self.event.cause else ""
        moved = " ".join((before, step, trial.state))
        trial.story.append(f"#{self.state.seq} {kind}{cause}: {moved}")
        del trial.story[:-STORY_KEPT]
        if self.state.cross_study:
            self._count_waiting(trial, step)
        if trial.state in FINAL:
            trial.finished_at = self.at
            # Early failures keep their draws, which show if trials with other values may pass.
            if step is not Step.FAIL or study.succeeded or not study.spec.evidence:
                trial.suggestions = ()
            if study.unheard is not None:
                study.unheard.append(trial.id)
            self.state.passed.pop(trial.id, None)
            if trial.id in self.state.ready:
                self.state.ready.remove(trial.id)
        elif step is Step.REVIVE:
            trial.finished_at = None
        if step in _SUCCESSES:
            study.succeeded += 1
        self.changes.trials[trial.id] = trial
        self.moved[study.spec.id] = None

    def reparametrise(self, trial: Trial, params: Params) -> None:
        trial.params = params
        self.reparametrised.add(trial.study)
        self.moved[trial.study] = None
        self.changes.trials[trial.id] = trial

    def accept(
        self,
        study: StudyState,
        trial: Trial,
        epoch: int,
        metrics: Mapping[str, float],
        state_hash: str,
    ) -> None:
        """Record the result and the state hash of the trial's next epoch."""
        trial.epoch = epoch
        trial.value = trial.values[epoch] = metrics[study.spec.metric]
        if study.spec.further or study.spec.constraints:
            trial.further = tuple(metrics[each.metric] for each in study.spec.further)
            trial.constraints = tuple(
                (name, metrics[name] - bound) for name, bound in study.spec.constraints
            )
        trial.hashes[epoch] = state_hash
        self.changes.trials[trial.id] = trial
        self.moved[study.spec.id] = None

    def _count_waiting(self, trial: Trial, step: Step) -> None:
        waits = self.state.waits.setdefault(trial.id, Waits())
        if step is Step.ENTER:
            waits.waited = 0.0
        if trial.state is TrialState.WAITING:
            waits.queued_at = self.at
        elif waits.queued_at is not None:
            waits.waited += max(0.0, self.at - waits.queued_at)
            waits.queued_at = None

    def close_attempt(self, trial: Trial) -> Attempt:
        """Close the trial's open attempt: charge its study, and free its slots. Return it."""
        attempt = self.state.attempts.pop(trial.fence)
        if attempt.counted_at is not None:
            settle(self.state, attempt, self.at)
        members, seconds = attempt.segment.members, max(0.0, self.at - attempt.dispatched_at)
        self.state.studies[attempt.study].used += len(members) * self.charge(attempt)
        for member in members:
            device = self.state.devices[member.device]
            device.fences[:] = [0 if fence == trial.fence else fence for fence in device.fences]
            if attempt.counted_at is not None:
                self.extensions.seats.left(device, device.device.lane(member.slot))
            self.state.faults.observe_work(seconds)
            self.state.preemptions.observe_work(seconds)
            self.touch(device)
            if member.device in self.state.held:
                self.note_device(member.device)
        trial.fence = 0
        return attempt

    def charge(self, attempt: Attempt, joules: float = 0.0) -> float:
        """Charge the study for the attempt's device time until now, and for ``joules``.

        Return the slot time that the attempt has had so far (seconds).
        """
        study, had = self.state.studies[attempt.study], slot_seconds(attempt, self.at)
        if joules or had > attempt.charged:  # mostly an epoch at the same time was just charged
            study.spent = charged(self.state, study.spent, attempt, had, joules)
        if study.spec.id in self.extensions.by_study:
            self.extensions.tell(study, "on_charged")
        return had

    def touch(self, device: DeviceState) -> None:
        """Note that an attempt started or ended on the device, which changes who shares it."""
        if device.device.slots > 1:
            self.touched.add(device.device.name)

    def revoke(self, trial: Trial, outcome: str = "revoked") -> None:
        """Close the trial's attempt and fence it off.

        ``outcome`` is counted as the outcome of the attempt's epoch: one of ``OUTCOMES`` in
        ``profiling.costs.outcomes``.
        """
        self.state.tally.observe(outcome)
        fence = trial.fence
        ranks = len(self.close_attempt(trial).segment.members)
        self.decide(Revoke, trial=trial.id, fence=fence, ranks=ranks)

    def check_fence(self, trial: Trial, fence: int) -> None:
        if fence != trial.fence:
            raise Refused(f"fence {fence} of {trial.id} is not the open one")

    def check_training(self, trial: Trial, fence: int) -> None:
        """Raise ``Refused`` unless an attempt with this fence is open and trains epochs.

        An attempt that measures widths trains none.
        """
        self.check_fence(trial, fence)
        attempt = self.state.attempts.get(fence)
        if attempt is not None and attempt.segment.widths:
            raise Refused(f"{trial.id} was to measure widths, and to train no epoch")

    def check_draws(
        self, trial: Trial, digest: str, suggestions: tuple[Suggestion, ...] = ()
    ) -> None:
        """Raise ``Unfit`` unless the accepted draws and ``suggestions`` together have ``digest``.

        A suggestion that differs from an accepted draw raises ``Unfit``, too. If ``digest`` is
        empty, that is the only check.
        """
        accepted, params = {each.name: each.draw for each in trial.suggestions}, dict(trial.params)
        for each in suggestions:
            # For a trial that began under 0.2 only the values of its draws are known.
            same = params.setdefault(each.name, each.value) == each.value
            if not same or accepted.setdefault(each.name, each.draw) != each.draw:
                raise Unfit(
                    f"{each.name} = {each.value!r} was drawn for {trial.id}, which has"
                    f" {each.name} = {params[each.name]!r}"
                )
        if digest and digest != digest_of(accepted.values()):
            raise Unfit(f"{trial.id} has other parameters than those that this belongs to")

    def check_writings(self, trial: Trial, number: int) -> None:
        """Raise ``Unfit`` if a message with the trial's writings before message ``number`` is lost.

        Numbers that have come before are accepted, since a session that takes over an attempt
        counts from 1 again.
        """
        last = self.state.attempts[trial.fence].writings
        if number > last + 1:
            raise Unfit(f"message {last + 1} of what {trial.id} wrote did not come")

    def study(self, name: str) -> StudyState:
        if name not in self.state.studies:
            raise Refused(f"study {name} is not running")
        return self.state.studies[name]

    def trial(self, name: str) -> Trial:
        if name not in self.state.trials:
            raise Refused(f"trial {name} is not of a running study")
        return self.state.trials[name]

    def device(self, name: str) -> DeviceState:
        if name not in self.state.devices:
            raise Refused(f"{name} has not joined")
        return self.state.devices[name]

    def fences_on(self, device: str) -> list[int]:
        """Return the fences of the open attempts on a device, in the order of their dispatch."""
        return sorted({fence for fence in self.state.devices[device].fences if fence})

    def cut_all(self, device: str) -> None:
        """Cut all attempts on a device, each at the end of its current epoch."""
        for fence in self.fences_on(device):
            attempt = self.state.attempts[fence]
            attempt.cut = True
            self.decide(Cut, trial=attempt.segment.trial, fence=fence)

    def pause(self, study: StudyState) -> None:
        """Pause the study: send no new segment, and cut each attempt at the end of its epoch."""
        study.status = "paused"
        self.halt(study)

    def halt(self, study: StudyState) -> None:
        """Cut all attempts of the study, each at the end of its current epoch."""
        for fence, attempt in self.state.attempts.items():
            if attempt.study == study.spec.id:
                attempt.cut = True
                self.decide(Cut, trial=attempt.segment.trial, fence=fence)
        self.touch_study(study)
        self.invalidate_plan()

    def note_device(self, name: str, reason: str = "") -> None:
        device = self.state.devices[name]
        self.changes.devices[name] = DeviceRecord(
            device.device, device.incarnation, self.state.device_status(name), self.at, reason
        )

    def trials_of(self, study: StudyState) -> list[Trial]:
        return [self.state.trials[name] for name in study.trials]

    def epochs_ahead(self, study: StudyState) -> int:
        """Return the least number of epochs that the study will train, whatever the results."""
        plan = study.spec.strategy
        whole = plan.max_epochs if plan.name == "full" else None
        trials = self.trials_of(study)
        ahead = sum(t.target - t.epoch for t in trials if t.target > t.epoch)
        unproposed = max(0, study.spec.n_trials - sum(not t.branched for t in trials))
        return ahead + unproposed * (whole or plan.min_epochs)

    def touch_study(self, study: StudyState) -> None:
        self.changes.studies[study.spec.id] = study.record

    def decision_id(self) -> str:
        return f"{self.state.seq}.{len(self.out)}"

    def decide(self, kind: type[Decision], **fields: Any) -> None:
        self.out.append(kind(id=self.decision_id(), cause=self.state.seq, **fields))

    def offer_slots(self) -> None:
        """Note that free slots may be given to trials. The engine does so when the event ends.

        Until an event sets ``PolicyChosen.fill_at_end``, slots are given out at once, while the
        event is handled, so that a replay of older ledgers gives the same fences.
        """
        if self.state.fill_at_end:
            self.slots_offered = True
        else:
            self.fill()

    def invalidate_plan(self) -> None:
        """Note that the input of the standing plan has changed."""
        self.state.dirty = True

    def ready(self) -> list[str]:
        """Return the trials in the queue that may get a slot; trials of paused studies may not."""
        trials = self.state.trials
        return [n for n in self.state.ready if self.state.studies[trials[n].study].runnable]
