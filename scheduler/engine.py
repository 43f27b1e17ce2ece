"""The core: ``handle(event) -> decisions``.

Theory of operation. The engine is a reducer: synchronous, without I/O, clock or randomness. One
event goes in, the state moves, decisions come out; the same events in the same order give the same
state and the same decisions, so the ledger's event table is all that a restart needs.

An event either counts or it does not. What is late, repeated or fenced off raises ``Refused`` and
changes nothing; the runner drops it. What cannot happen raises ``IllegalTransition``: a bug of
ours. Every handler therefore checks first and changes after.

Six classes, each a floor on the other: ``Record`` keeps the books, ``Durables`` the states in the
store, ``Placing`` gives slots to trials, ``Holding`` takes devices out for the operator,
``Numerics`` sees to it that a study is computed alike everywhere, and ``Engine`` knows what each
event means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from .decisions import (
    Ask,
    Decision,
    Member,
    Parent,
    Release,
)
from .events import (
    AttemptFailed,
    AttemptLost,
    DeviceDraining,
    DeviceJoined,
    DeviceLeft,
    DevicesGivenBack,
    DevicesTakenOut,
    Durable,
    EpochReported,
    Event,
    PolicyChosen,
    Proposed,
    StudyCancelled,
    StudyFailed,
    StudySubmitted,
    Suggested,
    Tick,
    TrialEnqueued,
    TrialReturned,
    Undurable,
)
from .numerics import Numerics
from .policies import find_policy
from .record import Refused
from .retry import ENDS_STUDY, retry_failure, retry_loss
from .state import DeviceState, StudyState
from .strategy import UNBOUNDED, make_strategy
from .study import trial_id
from .trial import FINAL, AcceptedEpoch, Failure, Step, Trial

#: Losses in a row after which a device rests, and the longest rest (seconds).
BACKOFF_AFTER = 3
BACKOFF_LONGEST = 30.0

__all__ = ["Engine", "Refused"]


class Engine(Numerics):
    """The reducer. ``state`` is its whole state; ``handle`` is the only way to change it."""

    def handle(self, event: Event) -> tuple[Decision, ...]:
        """Apply one event. ``Refused`` or ``IllegalTransition`` mean that nothing was changed."""
        handler = _HANDLERS[type(event)]
        self._out = []
        self._at = event.at
        self._event = event
        # Counted before the handler so that decisions can name it, and taken back if it refuses.
        self.state.seq += 1
        try:
            handler(self, event)
        except Exception:
            self.state.seq -= 1
            raise
        return tuple(self._out)

    def outstanding(self) -> tuple[Ask, ...]:
        """Asks without an answer: a restarted runner asks them again."""
        return tuple(ask for study in self.state.studies.values() for ask in study.asks.values())

    def wake_at(self) -> float | None:
        """When the engine wants a ``Tick`` (runner's clock), None when nothing waits for time."""
        waits = [d.backoff_until for d in self.state.devices.values() if d.backoff_until]
        if self.state.dirty and self.state.attempts and self.state.elastic():
            waits.append(self._plan_due())
        waits += self._deadlines()
        return min(waits, default=None)

    # -- studies ---------------------------------------------------------------------------------

    def _on_policy_chosen(self, event: PolicyChosen) -> None:
        find_policy(event.policy)
        if event.policy == self.state.policy:
            raise Refused("this policy stands already")
        self.state.policy = event.policy
        self.state.dirty = True

    def _on_study_submitted(self, event: StudySubmitted) -> None:
        spec = event.study
        if spec.id in self.state.studies or spec.id in self.state.finished:
            raise Refused(f"study {spec.id} was submitted already")
        study = StudyState(spec, cast(Any, make_strategy(spec)), created_at=event.at)
        study.enqueued = list(event.enqueued)
        self.state.studies[spec.id] = study
        self._touch_study(study)
        self._fill()

    def _on_study_cancelled(self, event: StudyCancelled) -> None:
        self._abandon(self._study(event.study), "cancelled")

    def _on_study_failed(self, event: StudyFailed) -> None:
        study = self._study(event.study)
        study.message = event.reason
        self._abandon(study, "failed")

    def _abandon(self, study: StudyState, status: str) -> None:
        """End a study with trials at work: they are fenced off, and what has run stays."""
        for trial in self._trials_of(study):
            if trial.state in FINAL:
                continue
            if trial.fence:
                self._revoke(trial)
            self._move(study, trial, Step.CANCEL)
            self._decide(Release, trial=trial.id)
        self._finish(study, status)
        self._fill()

    def _on_trial_enqueued(self, event: TrialEnqueued) -> None:
        study = self._study(event.study)
        asked = len(study.trials) + sum(ask.n for ask in study.asks.values())
        if asked + len(study.enqueued) >= study.spec.n_trials:
            raise Refused(f"all {study.spec.n_trials} trials of {study.spec.name} are taken")
        study.enqueued.append(event.params)

    def _on_proposed(self, event: Proposed) -> None:
        study = self._study(event.study)
        if event.index not in study.asks:
            raise Refused(f"ask {event.index} of {event.study} was answered already")
        del study.asks[event.index]
        names = []
        for params in event.trials:
            number = len(study.trials)
            trial = Trial(
                id=trial_id(study.spec.id, number),
                study=study.spec.id,
                number=number,
                params=params,
                created_at=event.at,
            )
            self.state.trials[trial.id] = trial
            study.trials.append(trial.id)
            study.active += 1
            self._changes.trials[trial.id] = trial
            names.append(trial.id)
        self._enter(study, study.strategy.proposed(tuple(names), exhausted=event.exhausted))
        self._settle(study)
        self._fill()

    def _on_suggested(self, event: Suggested) -> None:
        trial = self._trial(event.trial)
        if any(name == event.name for name, _ in trial.params):
            raise Refused(f"{event.name} of {trial.id} is known already")
        trial.params = (*trial.params, (event.name, event.value))
        self._changes.trials[trial.id] = trial

    # -- devices ---------------------------------------------------------------------------------

    def _on_device_joined(self, event: DeviceJoined) -> None:
        name = event.device.name
        known = self.state.devices.get(name)
        if known is not None:
            if known.incarnation == event.incarnation and not known.draining:
                raise Refused(f"{name} has joined already")
            self._lose_all(name, "its worker was started anew")
        if (hold := self.state.held.get(name)) is not None:
            hold.gone = None
        self.state.devices[name] = DeviceState(
            event.device, event.incarnation, [0] * event.device.slots
        )
        for study in self.state.studies.values():
            if study.refused.pop(name, None) is not None:
                study.machines.pop(name, None)
        self._device_changed(name)

    def _on_device_draining(self, event: DeviceDraining) -> None:
        device = self._device(event.device)
        if device.draining:
            raise Refused(f"{event.device} is draining already")
        device.draining = True
        self._cut_all(event.device)
        self._device_changed(event.device)

    def _on_device_left(self, event: DeviceLeft) -> None:
        self._device(event.device)
        self._lose_all(event.device, event.reason)
        self._note_gone(event.device, event.reason)
        del self.state.devices[event.device]
        self.state.dirty = True
        self._fill()

    def _device_changed(self, name: str) -> None:
        self._note_device(name)
        self.state.dirty = True
        self._fill()

    def _lose_all(self, device: str, reason: str) -> None:
        # Closed first: what a lost trial sets free must not come back to this device.
        self.state.devices[device].draining = True
        for fence in self._fences_on(device):
            self.state.faults.saw_loss()
            trial = self.state.trials[self.state.attempts[fence].segment.trial]
            self._lose(trial, [device], reason)

    # -- reports ---------------------------------------------------------------------------------

    def _on_epoch_reported(self, event: EpochReported) -> None:
        trial = self._trial(event.trial)
        study = self.state.studies[trial.study]
        if event.fence != trial.fence:
            self._compare(study, trial, event)
            return
        if event.epoch != trial.epoch + 1:
            raise Refused(f"epoch {event.epoch} of {trial.id} after {trial.epoch} accepted")
        value = dict(event.metrics).get(study.spec.metric)
        if value is None:
            raise Refused(f"a report of {trial.id} without {study.spec.metric}")
        if event.signature != trial.signature and not self._admits(
            study, trial, event.epoch, event.signature
        ):
            device = self.state.attempts[event.fence].segment.members[0].device
            reason = self._refuse_unlike(study, trial, device, event.signature)
            self._lose(trial, [device], reason)
            self._end_if_stranded(study)
            self._fill()
            return
        self._accept(study, trial, event, value)
        if event.closes:
            self._close(study, trial)

    def _compare(self, study: StudyState, trial: Trial, event: EpochReported) -> None:
        """A late report of an accepted epoch is a free check of its bits, and otherwise nothing."""
        accepted = trial.hashes.get(event.epoch, "")
        statistical = study.spec.exactness == "statistical"
        if statistical or not accepted or accepted == event.state_hash:
            raise Refused(f"fence {event.fence} of {trial.id} is not the open one")
        study.message = (
            f"{trial.id} epoch {event.epoch}: a repeated run has state {event.state_hash[:12]}, "
            f"accepted was {accepted[:12]}; the training code or the machine is not deterministic"
        )
        self._touch_study(study)

    def _accept(self, study: StudyState, trial: Trial, event: EpochReported, value: float) -> None:
        trial.epoch = event.epoch
        trial.value = value
        trial.values[event.epoch] = value
        trial.hashes[event.epoch] = event.state_hash
        trial.state_hash = event.state_hash
        trial.signature = event.signature
        trial.holder = event.holder
        trial.failures = trial.losses = 0
        attempt = self.state.attempts[trial.fence]
        members = attempt.segment.members
        for member in members:
            self.state.devices[member.device].losses = 0
        self._saw(study, members)
        attempt.trained += event.seconds
        if self.state.costs.saw_epoch(study.spec.id, trial.id, event.seconds, len(members)):
            self.state.dirty = True
        self._changes.trials[trial.id] = trial
        self._changes.epochs.append(
            AcceptedEpoch(
                trial=trial.id,
                epoch=event.epoch,
                value=value,
                metrics=event.metrics,
                state_hash=event.state_hash,
                signature=event.signature,
                seconds=event.seconds,
                device=members[0].device,
                slot=members[0].slot,
                fence=event.fence,
                at=event.at,
                members=members,
            )
        )
        if event.uri:
            self._keep(study, trial, Parent(event.epoch, event.uri, event.state_hash))

    def _close(self, study: StudyState, trial: Trial) -> None:
        attempt = self._close_attempt(trial)
        self.state.costs.saw_segment(self._at - attempt.dispatched_at, attempt.trained)
        if trial.epoch < trial.target:
            self._move(study, trial, Step.YIELD)
            self._go_on(study, trial, attempt.segment.members)
            return
        self.state.dirty = True
        score = study.spec.sign * trial.values[trial.epoch]
        if trial.epoch >= (study.spec.strategy.max_epochs or UNBOUNDED):
            self._move(study, trial, Step.FINISH)
            self._over(study, trial)
            self._decide(Release, trial=trial.id)
        else:
            self._move(study, trial, Step.REACH)
        self._enter(study, study.strategy.reached(trial.id, trial.epoch, score))
        self._settle(study)
        self._fill()

    def _go_on(self, study: StudyState, trial: Trial, members: tuple[Member, ...]) -> None:
        """Under the standing plan: the next segment follows on the same slots."""
        stays = not any(self.state.closed(m.device) or m.device in study.refused for m in members)
        if stays and self._width(study, trial) == len(members) and not self.state.shuffle:
            self._dispatch(study, trial, members)
            return
        # Where widths are drawn, a wide trial must not be overtaken for ever by narrow ones.
        self._wait(trial, first=not self.state.shuffle)
        self._fill()

    def _on_trial_returned(self, event: TrialReturned) -> None:
        trial = self._trial(event.trial)
        study = self.state.studies[trial.study]
        self._check_fence(trial, event.fence)
        if event.value is not None:
            trial.value = event.value
        self._close_attempt(trial)
        if trial.value is None:
            trial.failure = Failure("metric", "the objective returned None and reported nothing")
            self._move(study, trial, Step.FAIL)
        else:
            self._move(study, trial, Step.FINISH)
        self._leave(study, trial)

    def _on_attempt_failed(self, event: AttemptFailed) -> None:
        trial = self._trial(event.trial)
        study = self.state.studies[trial.study]
        self._check_fence(trial, event.fence)
        trial.failures += 1
        trial.failure = Failure(event.kind, event.message, event.traceback)
        self._close_attempt(trial)
        if event.kind == "died":
            self.state.faults.saw_loss()
        if event.kind in ENDS_STUDY:
            self._move(study, trial, Step.FAIL)
            self._decide(Release, trial=trial.id)
            study.message = f"{trial.id}: {event.message}"
            self._abandon(study, "failed")
        elif retry_failure(event.kind, event.message, trial.failures, study.spec.retries):
            self._move(study, trial, Step.RETRY)
            self._wait(trial, first=True)
            self._fill()
        else:
            self._move(study, trial, Step.FAIL)
            self._leave(study, trial)

    def _on_attempt_lost(self, event: AttemptLost) -> None:
        trial = self._trial(event.trial)
        self._check_fence(trial, event.fence)
        members = self.state.attempts[event.fence].segment.members
        blamed = [members[rank] for rank in event.ranks if rank < len(members)]
        at = [member.device for member in blamed or members]
        study = self.state.studies[trial.study]
        if event.signature:
            at = self._unlike(study, trial, event, members)
        elif event.refused:
            study.refused |= dict.fromkeys(at, event.reason)
            study.message = f"{', '.join(at)} refused {trial.id}: {event.reason}"
            self._touch_study(study)
        else:
            self.state.faults.saw_loss()
        self._lose(trial, at, event.reason)
        self._end_if_stranded(study)
        self._fill()

    def _end_if_stranded(self, study: StudyState) -> None:
        if self._stranded(study):
            self._abandon(study, "failed")

    def _on_tick(self, event: Tick) -> None:
        self._end_deadlines()
        self._fill()

    def _lose(self, trial: Trial, at: list[str], reason: str) -> None:
        """The infrastructure lost the attempt ``at`` these devices: to the head of the line."""
        study = self.state.studies[trial.study]
        for name in at:
            device = self.state.devices[name]
            device.losses += 1
            if device.losses >= BACKOFF_AFTER:
                rest = min(BACKOFF_LONGEST, 2.0 ** (device.losses - BACKOFF_AFTER))
                device.backoff_until = self._at + rest
                self._note_device(name, f"{device.losses} losses in a row")
        trial.losses += 1
        self._revoke(trial)
        if retry_loss(trial.losses):
            self._move(study, trial, Step.LOSE)
            self._wait(trial, first=True)
        else:
            trial.failure = Failure("lost", f"lost {trial.losses} times in a row: {reason}")
            self._move(study, trial, Step.FAIL)
            self._leave(study, trial)

    def _leave(self, study: StudyState, trial: Trial) -> None:
        """The trial will reach no further target."""
        self.state.dirty = True
        self._over(study, trial)
        self._decide(Release, trial=trial.id)
        self._enter(study, study.strategy.left(trial.id))
        self._settle(study)
        self._fill()


_HANDLERS: dict[type[Event], Callable[[Engine, Any], None]] = {
    PolicyChosen: Engine._on_policy_chosen,
    StudySubmitted: Engine._on_study_submitted,
    StudyCancelled: Engine._on_study_cancelled,
    StudyFailed: Engine._on_study_failed,
    TrialEnqueued: Engine._on_trial_enqueued,
    Proposed: Engine._on_proposed,
    Suggested: Engine._on_suggested,
    DeviceJoined: Engine._on_device_joined,
    DeviceDraining: Engine._on_device_draining,
    DeviceLeft: Engine._on_device_left,
    DevicesTakenOut: Engine._on_devices_taken_out,
    DevicesGivenBack: Engine._on_devices_given_back,
    EpochReported: Engine._on_epoch_reported,
    Durable: Engine._on_durable,
    Undurable: Engine._on_undurable,
    TrialReturned: Engine._on_trial_returned,
    AttemptFailed: Engine._on_attempt_failed,
    AttemptLost: Engine._on_attempt_lost,
    Tick: Engine._on_tick,
}
