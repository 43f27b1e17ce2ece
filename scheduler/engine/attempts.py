"""The end of an attempt: its objective returns, its code fails, or the infrastructure loses it.

Theory of operation. An attempt is one dispatched segment. Reports of an attempt count as long as
the trial still has the attempt's fence. The module ``epochs`` handles the attempt's epochs, and the
last epoch may end the attempt. This module handles all other ends. Failures of the user's code and
losses by the infrastructure are treated differently. A failure belongs to the trial, and the kind
of the failure decides whether the trial is tried again. A loss counts against the devices on which
the attempt ran. After several losses in a row, a device gets no work for some seconds (it *rests*).
"""

from __future__ import annotations

from ...base.backoff import Backoff
from ...profiling.costs.width_window import has_gain
from ..model.decisions import Release
from ..model.early_failure import failing_alike, failing_in_part, missing_metric
from ..model.events import AttemptFailed, AttemptLost, TrialReturned, WidthsMeasured
from ..model.retry import ENDS_STUDY, retry_failure, retry_loss
from ..model.trial import FINAL, Failure, Step, Trial
from ..planning.planning import Planning
from ..planning.snapshots import MAX_VAIN_WINDOWS
from ..state.core import Core, Refused, Unfit
from ..state.state import PastWindows, StudyState
from ..strategies.base import UNBOUNDED
from .checkpoints import Checkpoints
from .proposals import Proposals
from .signatures import Signatures

#: Pauses (seconds) in which a device gets no work after losses in a row.
RESTS = Backoff(first=1.0, longest=30.0, free=2)


class Attempts:
    """Handles reports of attempts, other than reports of epochs, and ends attempts."""

    def __init__(
        self,
        core: Core,
        *,
        checkpoints: Checkpoints,
        planning: Planning,
        signatures: Signatures,
        proposals: Proposals,
    ) -> None:
        self._core = core
        self._state = core.state
        self._checkpoints = checkpoints
        self._planning = planning
        self._signatures = signatures
        self._proposals = proposals

    def on_trial_returned(self, event: TrialReturned) -> None:
        trial = self._core.trial(event.trial)
        study = self._state.studies[trial.study]
        self._core.check_training(trial, event.fence)
        if event.draws_digest:
            self._core.check_draws(trial, event.draws_digest)
        if event.reported > trial.epoch and not study.spec.also:  # else reports may be refused
            raise Unfit(f"{trial.id} has {event.reported} reports, of which {trial.epoch} came")
        if event.writings:
            self._core.check_writings(trial, event.writings + 1)
        if event.value is not None and len(event.further) != len(study.spec.further):
            raise Refused(f"{trial.id} returned {1 + len(event.further)} values")
        if event.value is not None:
            trial.value, trial.further = event.value, event.further
        trial.constraints = event.constraints or trial.constraints
        if event.unasked:
            params = tuple(item for item in trial.params if item[0] not in event.unasked)
            self._core.reparametrise(trial, params)
            names = ", ".join(event.unasked)
            study.message = f"enqueued for {trial.id}, which never asked for it: {names}"
            self._core.touch_study(study)
        self._core.close_attempt(trial)
        if event.pruned:
            self._core.move(study, trial, Step.PRUNE)
        elif trial.value is None:
            trial.failure = Failure("metric", "the objective returned None and reported nothing")
            self._core.move(study, trial, Step.FAIL)
        elif trial.epoch >= (study.spec.strategy.max_epochs or UNBOUNDED):
            self._core.invalidate_plan()
            entries = self._proposals.reached(study, trial, returned=True)
            self._proposals.enter(study, entries)
            self._proposals.settle(study)
            self._core.offer_slots()
            return
        else:
            self._core.move(study, trial, Step.FINISH)
        self._end_trial(study, trial)

    def on_attempt_failed(self, event: AttemptFailed) -> None:
        trial = self._core.trial(event.trial)
        study = self._state.studies[trial.study]
        self._core.check_fence(trial, event.fence)
        if self._state.attempts[event.fence].segment.widths:
            # On a copy, at a width that it may never have: nothing of this is the trial's fault.
            self._windows(study.spec.id).vain = MAX_VAIN_WINDOWS
            study.message = f"{trial.id}: widths cannot be measured: {event.message}"
            self._core.touch_study(study)
            self._core.close_attempt(trial)
            self._continue_after_window(study, trial, Step.RETRY)
            return
        excused = self._core.extensions.excuses(study, trial, event)
        trial.failures += not excused
        failure = Failure(event.kind, event.message, event.traceback)
        self._core.close_attempt(trial)
        self._state.tally.observe("failed")
        if event.kind == "died":
            self._state.faults.observe_loss()
        if event.kind in ENDS_STUDY:
            trial.failure = failure
            self._core.move(study, trial, Step.FAIL)
            self._core.decide(Release, trial=trial.id)
            study.message = f"{trial.id}: {event.message}"
            self.abandon(study, "failed")
        elif excused or retry_failure(
            event.kind, event.message, trial.failures, study.spec.retries
        ):
            self._core.move(study, trial, Step.RETRY)
            self._proposals.wait(trial, first=True)
            self._core.offer_slots()
        else:
            trial.failure = failure
            self._core.move(study, trial, Step.FAIL)
            self._end_trial(study, trial)

    def on_widths_measured(self, event: WidthsMeasured) -> None:
        trial = self._core.trial(event.trial)
        self._core.check_fence(trial, event.fence)
        study = self._state.studies[trial.study]
        segment = self._state.attempts[event.fence].segment
        measured = {width for width, _ in event.seconds}
        if not segment.widths or not measured <= {*segment.widths}:
            raise Refused(f"{trial.id} measured widths that it was not asked for")
        if measured and 1 not in measured:
            raise Refused(f"{trial.id} measured widths, but not one device")
        cut, windows = self._core.close_attempt(trial).cut, self._windows(study.spec.id)
        if cut and len(measured) < 2:
            windows.cut[trial.id] = windows.cut.get(trial.id, 0) + 1
        else:
            windows.widest[trial.id] = len(segment.members)
        if has_gain(dict(event.seconds)):
            windows.vain = 0
        elif len(measured) > 1 or not cut:
            windows.vain += 1
        self._state.costs.observe_window(
            study.spec.id,
            trial.id,
            dict(event.seconds),
            event.steps,
            self._state.features(trial),
            meeting=event.meeting,
            met=event.met,
        )
        self._continue_after_window(study, trial, Step.YIELD, learned=len(measured) > 1)

    def _windows(self, study: str) -> PastWindows:
        return self._state.past_windows.setdefault(study, PastWindows())

    def _continue_after_window(
        self, study: StudyState, trial: Trial, step: Step, *, learned: bool = False
    ) -> None:
        """Return the trial to training after a window in which its speed at widths was measured.

        If the window measured nothing (``learned`` is False), the trial keeps its planned width,
        because its next epoch may begin before the next plan is made. Without a width, that epoch
        would run on one device.
        """
        if learned or not self._state.keep_widths:
            self._planning.forget(trial)
        else:
            self._core.invalidate_plan()
        self._core.move(study, trial, step)
        self._proposals.wait(trial, first=True)
        self._core.offer_slots()

    def on_attempt_lost(self, event: AttemptLost) -> None:
        trial = self._core.trial(event.trial)
        self._core.check_fence(trial, event.fence)
        segment = self._state.attempts[event.fence].segment
        members = segment.members
        if segment.widths:
            windows = self._windows(trial.study)
            windows.widest[trial.id] = len(members)
            windows.vain += 1
        blamed = [members[rank] for rank in dict.fromkeys(event.ranks) if rank < len(members)]
        devices = [member.device for member in blamed or members]
        study = self._state.studies[trial.study]
        if event.signature:
            devices = self._signatures.exclude_differing(study, trial, event, members)
        elif event.refused:
            study.refused |= dict.fromkeys(devices, event.reason)
            study.message = f"{', '.join(devices)} refused {trial.id}: {event.reason}"
            self._core.touch_study(study)
            if study.spec.environment:  # it is to blame, and neither the trial nor its devices
                self._requeue_refused(study, trial)
                return
        else:
            self._state.faults.observe_loss()
        self.lose(trial, devices, event.reason)
        self.end_if_stuck(study)
        self._core.offer_slots()

    def _requeue_refused(self, study: StudyState, trial: Trial) -> None:
        self._core.revoke(trial, "lost")
        self._core.move(study, trial, Step.LOSE)
        self._proposals.wait(trial, first=True)
        self._core.offer_slots()

    def end_if_stuck(self, study: StudyState) -> None:
        if self._signatures.is_stuck(study):
            self.abandon(study, "failed")

    def lose_all(self, device: str, reason: str) -> None:
        # The device is closed first, so that no slot that a lost trial frees is filled again.
        self._state.devices[device].draining = True
        for fence in self._core.fences_on(device):
            self._state.faults.observe_loss()
            trial = self._state.trials[self._state.attempts[fence].segment.trial]
            self.lose(trial, [device], reason)

    def lose(self, trial: Trial, devices: list[str], reason: str) -> None:
        """Handle the loss of the trial's attempt on these ``devices``.

        The trial goes to the head of the line, or fails after too many losses in a row.
        """
        study = self._state.studies[trial.study]
        alone = not self._has_neighbours(trial)
        for name in devices if alone else ():
            device = self._state.devices[name]
            device.losses += 1
            if (rest := RESTS.after(device.losses)) > 0.0:
                device.backoff_until = self._core.at + rest
                self._core.note_device(name, f"{device.losses} losses in a row")
        trial.losses += 1
        self._core.revoke(trial, "lost")
        if retry_loss(trial.losses):
            self._core.move(study, trial, Step.LOSE)
            self._proposals.wait(trial, first=True)
        else:
            trial.failure = Failure("lost", f"lost {trial.losses} times in a row: {reason}")
            self._core.move(study, trial, Step.FAIL)
            self._end_trial(study, trial)

    def _has_neighbours(self, trial: Trial) -> bool:
        """Return True if other trials are in the trial's lane.

        If the trainer of the lane has ended, only the loss of the lane's last trial counts.
        """
        attempt = self._state.attempts[trial.fence]
        if attempt.counted_at is None:
            return False
        member = attempt.segment.members[0]
        device = self._state.devices[member.device]
        return len(self._state.residents(device, device.device.lane(member.slot))) > 1

    def _end_trial(self, study: StudyState, trial: Trial) -> None:
        """Release a trial that will reach no further target, and end or advance its study."""
        self._core.invalidate_plan()
        self._checkpoints.trial_over(study, trial)
        self._core.decide(Release, trial=trial.id)
        trials = self.trials_of_this_call(study)
        if why := missing_metric(study.spec, trials) or failing_alike(study.spec, trials):
            study.message = why
            self.abandon(study, "failed")
            return
        self._proposals.abandon(study, trial)
        self._proposals.settle(study)
        if study.status == "running" and (why := failing_in_part(study.spec, trials)):
            study.message = why
            self._core.pause(study)
        self._core.offer_slots()

    def trials_of_this_call(self, study: StudyState) -> list[Trial]:
        """Return the trials from which the code of the present call of ``optimize`` is judged.

        These are the trials that had not ended before the call. Branches are left out, because the
        user chose their parameters.
        """
        own_trials = [trial for trial in self._core.trials_of(study) if not trial.branched]
        return [t for t in own_trials if (t.finished_at or study.extended_at) >= study.extended_at]

    def abandon(self, study: StudyState, status: str) -> None:
        """End a study, even if some of its trials are running.

        The attempts of running trials are fenced off, so their later reports do not count. Accepted
        epochs stay.
        """
        for trial in self._core.trials_of(study):
            if trial.state in FINAL:
                continue
            if trial.fence:
                self._core.revoke(trial, "cancelled")
            self._core.move(study, trial, Step.CANCEL)
            self._core.decide(Release, trial=trial.id)
        self._proposals.finish(study, status)
        self._core.offer_slots()
