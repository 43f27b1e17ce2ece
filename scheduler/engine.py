"""The core: ``handle(event) -> decisions``.

Theory of operation. The engine is a reducer: synchronous, without I/O, clock or randomness. One
event goes in, the state moves, decisions come out; the same events in the same order give the same
state and the same decisions, so the ledger's event table is all that a restart needs.

An event either counts or it does not. What is late, repeated or fenced off raises ``Refused`` and
changes nothing; the runner drops it. What cannot happen raises ``IllegalTransition``: a bug of
ours. Every handler therefore checks first and changes after.

Thirteen classes, each a floor on the other: ``Record`` keeps the books, ``Durables`` the states in
the store, ``Sharing`` the studies' shares, ``Planning`` the standing plan, ``Tuning`` the system
parameters, ``Packing`` sees to several trials on one device, ``Placing`` gives slots to trials,
``Holding`` takes devices out for the operator, ``Numerics`` sees to it that a study is computed
alike everywhere, ``Attempts`` takes in what is reported, ``Extending`` interrupts studies and has
them go on, ``Asking`` serves users who train by themselves, and ``Engine`` takes in what begins and
ends: studies, trials, devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from .asking import Asking
from .decisions import (
    Ask,
    AskConfigs,
    Consult,
    Decision,
    Release,
)
from .events import (
    Advised,
    AttemptFailed,
    AttemptLost,
    ConfigsProposed,
    DeviceDraining,
    DeviceJoined,
    DeviceLeft,
    DevicesGivenBack,
    DevicesTakenOut,
    Durable,
    EpochReported,
    Event,
    LedgerRestored,
    Planned,
    PolicyChosen,
    PolicyFailed,
    Profiled,
    Proposed,
    Replayed,
    StudyCancelled,
    StudyClosed,
    StudyExtended,
    StudyFailed,
    StudyImported,
    StudyPaused,
    StudyResumed,
    StudySubmitted,
    StudyWeighed,
    Suggested,
    Tick,
    TrialAsked,
    TrialEnqueued,
    TrialReturned,
    TrialTold,
    Undurable,
    WindowsMeasured,
)
from .placing import ORDER_FREE
from .policies import find_policy, is_plugin
from .record import Refused
from .state import ERA, DeviceState, StudyState
from .strategy import Entry
from .study import Params, trial_id
from .trial import Trial, TrialState

__all__ = ["Engine", "Refused"]

#: So many trials of a study beyond those that it is to have may be forgotten: forks, extensions.
FORGOTTEN_TRIALS = 100


class Engine(Asking):
    """The reducer. ``state`` is its whole state; ``handle`` is the only way to change it."""

    def handle(self, event: Event) -> tuple[Decision, ...]:
        """Apply one event. ``Refused`` or ``IllegalTransition`` mean that nothing was changed."""
        handler = _HANDLERS[type(event)]
        self._out = []
        self._at = event.at
        self._event = event
        self._touched.clear()
        # Counted before the handler so that decisions can name it, and taken back if it refuses.
        self.state.seq += 1
        try:
            handler(self, event)
        except Exception:
            self.state.seq -= 1
            raise
        if self._touched:
            for name in sorted(self._touched & self.state.devices.keys()):
                self._at_work_changed(name)
        return tuple(self._out)

    def outstanding(self) -> tuple[Ask, ...]:
        """Asks without an answer: a restarted runner asks them again."""
        return tuple(ask for study in self.state.studies.values() for ask in study.asks.values())

    def consults(self) -> tuple[Consult, ...]:
        """Questions to the history without an answer, likewise."""
        asked = (tuned.asked for tuned in self.state.tuned.values())
        return tuple(consult for consult in asked if consult is not None)

    def sought(self) -> tuple[AskConfigs, ...]:
        """Questions for system configurations without an answer, likewise."""
        return tuple(ask for tuned in self.state.tuned.values() for ask in tuned.sought)

    def wake_at(self) -> float | None:
        """When the engine wants a ``Tick`` (runner's clock), None when nothing waits for time."""
        waits = [d.backoff_until for d in self.state.devices.values() if d.backoff_until]
        if self.state.dirty and self.state.elastic() and (self.state.attempts or self._ready()):
            waits.append(self._plan_due())
        waits += self._deadlines()
        return min(waits, default=None)

    # -- studies ---------------------------------------------------------------------------------

    def _on_policy_chosen(self, event: PolicyChosen) -> None:
        if not is_plugin(event.policy):
            find_policy(event.policy)
        if event.policy == self.state.policy:
            raise Refused("this policy stands already")
        self.state.policy = event.policy
        self.state.plan_error, self.state.plan_asked, self.state.aside_until = "", None, 0.0
        self.state.planned_at = None
        self.state.dirty = True

    def _on_ledger_restored(self, event: LedgerRestored) -> None:
        """What was sent from here on is unknown: no fence of it may be given out a second time.

        A trial that begins anew has the id of a forgotten one, and may have other parameters: so
        workers drop what they hold of any that may have been. Slots are filled by a later event,
        for what is released with a dispatch would take the dispatch along.
        """
        for attempt in list(self.state.attempts.values()):
            self._take_away(self.state.trials[attempt.segment.trial])
        self.state.fence = max(self.state.fence // ERA + 1, int(event.at)) * ERA
        for study in self.state.studies.values():
            most = max(study.spec.n_trials, len(study.trials)) + FORGOTTEN_TRIALS
            for number in range(most):
                self._decide(Release, trial=trial_id(study.spec.id, number))
        self.state.dirty = True

    def _on_planned(self, event: Planned) -> None:
        self._take_plans(event.cause, event.plans)
        self._fill()

    def _on_policy_failed(self, event: PolicyFailed) -> None:
        self._take_plans(event.cause, None, event.reason)
        self._fill()

    def _on_study_submitted(self, event: StudySubmitted) -> None:
        spec = event.study
        if spec.id in self.state.studies or spec.id in self.state.finished:
            raise Refused(f"study {spec.id} was submitted already")
        study = StudyState(spec, cast(Any, self._strategies(spec)), created_at=event.at)
        study.enqueued = list(event.enqueued)
        self.state.studies[spec.id] = study
        self._touch_study(study)
        if spec.sampler in ORDER_FREE and spec.contract != "ask":
            self._pull_study(study, 0)  # what is known at once is planned with, whoever is first
        self._fill()

    def _on_study_cancelled(self, event: StudyCancelled) -> None:
        self._abandon(self._study(event.study), "cancelled")

    def _on_study_failed(self, event: StudyFailed) -> None:
        study = self._study(event.study)
        study.message = event.reason
        self._abandon(study, "failed")

    def _on_study_imported(self, event: StudyImported) -> None:
        spec = event.record.spec
        if spec.id in self.state.studies or spec.id in self.state.finished:
            raise Refused(f"there is a study {spec.id} already")
        self.state.finished[spec.id] = spec.name
        self._changes.studies[spec.id] = event.record
        for past in event.trials:
            trial = past.record(spec.id)
            self._changes.trials[trial.id] = trial
            for state, at in past.durables:
                self._changes.durables[trial.id, state.epoch] = (state, at)
        # Readers take their order for that of acceptance.
        epochs = [epoch for past in event.trials for epoch in past.epochs]
        self._changes.epochs += sorted(epochs, key=lambda epoch: epoch.at)

    def _on_trial_enqueued(self, event: TrialEnqueued) -> None:
        study = self._study(event.study)
        asked = len(study.trials) + sum(ask.n for ask in study.asks.values())
        if study.spec.contract == "ask" or asked + len(study.enqueued) < study.spec.n_trials:
            study.enqueued.append(event.params)
        else:
            self._make_room(study, event.params)

    def _make_room(self, study: StudyState, params: Params) -> None:
        """All trials are proposed: one that has not begun has these parameters, and is next."""
        fresh = [t for t in self._trials_of(study) if _unbegun(t) and not t.enqueued]
        if not fresh:
            raise Refused(f"all {study.spec.n_trials} trials of {study.spec.name} have begun")
        wish = dict(params)
        same = (t for t in fresh if dict(t.params).items() >= wish.items())
        trial = next(same, fresh[-1])
        trial.params, trial.enqueued = tuple((dict(trial.params) | wish).items()), True
        ready = self.state.ready
        trial.since = min(self.state.trials[name].since for name in ready)
        ready.remove(trial.id)
        wished = [_unbegun(t) and t.enqueued for t in map(self.state.trials.__getitem__, ready)]
        ready.insert(wished.index(False) if False in wished else len(ready), trial.id)
        self._changes.trials[trial.id] = trial

    def _on_proposed(self, event: Proposed) -> None:
        study = self._study(event.study)
        if event.index not in study.asks:
            raise Refused(f"ask {event.index} of {event.study} was answered already")
        ask = study.asks.pop(event.index)
        fork, wishes = ask.fork, len(ask.enqueued)
        names = []
        kept = event.notes or ("",) * len(event.trials)
        for place, (params, notes) in enumerate(zip(event.trials, kept, strict=True)):
            number = len(study.trials)
            trial = Trial(
                id=trial_id(study.spec.id, number),
                study=study.spec.id,
                number=number,
                params=params,
                created_at=event.at,
                notes=notes,
                enqueued=place < wishes,
            )
            if fork is not None:
                self._inherit(study, trial, fork)
            self.state.trials[trial.id] = trial
            study.trials.append(trial.id)
            study.active += 1
            self._changes.trials[trial.id] = trial
            names.append(trial.id)
        if study.spec.contract == "ask":
            self._hand_out(study, names)
            return
        if fork is None:
            self._enter(study, study.strategy.proposed(tuple(names), exhausted=event.exhausted))
        else:
            self._enter(study, tuple(Entry(name, fork.epochs) for name in names))
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

    def _on_tick(self, event: Tick) -> None:
        self._end_deadlines()
        self._fill()


def _unbegun(trial: Trial) -> bool:
    """Whether it waits for its first segment."""
    return trial.state is TrialState.WAITING and trial.dispatched_at is None


_HANDLERS: dict[type[Event], Callable[[Engine, Any], None]] = {
    PolicyChosen: Engine._on_policy_chosen,
    LedgerRestored: Engine._on_ledger_restored,
    Planned: Engine._on_planned,
    PolicyFailed: Engine._on_policy_failed,
    StudySubmitted: Engine._on_study_submitted,
    StudyCancelled: Engine._on_study_cancelled,
    StudyPaused: Engine._on_study_paused,
    StudyResumed: Engine._on_study_resumed,
    StudyWeighed: Engine._on_study_weighed,
    StudyExtended: Engine._on_study_extended,
    StudyFailed: Engine._on_study_failed,
    StudyImported: Engine._on_study_imported,
    TrialEnqueued: Engine._on_trial_enqueued,
    TrialAsked: Engine._on_trial_asked,
    TrialTold: Engine._on_trial_told,
    StudyClosed: Engine._on_study_closed,
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
    Replayed: Engine._on_replayed,
    TrialReturned: Engine._on_trial_returned,
    AttemptFailed: Engine._on_attempt_failed,
    AttemptLost: Engine._on_attempt_lost,
    WindowsMeasured: Engine._on_windows_measured,
    Profiled: Engine._on_profiled,
    Advised: Engine._on_advised,
    ConfigsProposed: Engine._on_configs_proposed,
    Tick: Engine._on_tick,
}
