"""What becomes of an attempt: its epochs, its end, its failure and its loss.

Theory of operation. An attempt is one dispatched segment, and counts while its fence is the
trial's. Each epoch that it reports is accepted singly; the one that closes it gives its devices
back, and the trial goes on under the standing plan, rests at its target, or is over. What the
user's code did wrong and what the infrastructure lost are told apart: the former is the trial's
own, by its kind; the latter counts against the devices that it was lost at, which rest after
several in a row.
"""

from __future__ import annotations

from .decisions import Member, Parent, Release
from .events import AttemptFailed, AttemptLost, EpochReported, Replayed, TrialReturned
from .numerics import Numerics
from .record import Refused
from .retry import ENDS_STUDY, METRIC_LIMIT, retry_failure, retry_loss
from .state import ERA, Attempt, StudyState
from .strategy import UNBOUNDED
from .trial import FINAL, AcceptedEpoch, Failure, Step, Trial

#: Losses in a row after which a device rests, and the longest rest (seconds).
BACKOFF_AFTER = 3
BACKOFF_LONGEST = 30.0


class Attempts(Numerics):
    """Takes in what is reported of attempts, and ends them."""

    def _on_epoch_reported(self, event: EpochReported) -> None:
        trial = self._trial(event.trial)
        study = self.state.studies[trial.study]
        if event.fence != trial.fence:
            self._compare(study, trial, event)
            return
        if event.epoch != trial.epoch + 1:
            raise Refused(f"epoch {event.epoch} of {trial.id} after {trial.epoch} accepted")
        metrics = dict(event.metrics)
        value = metrics.get(study.spec.metric)
        lacking = [name for name in study.spec.also if name not in metrics]
        if value is None or lacking:
            raise Refused(
                f"a report of {trial.id} without {', '.join(lacking) or study.spec.metric}"
            )
        if self._to_be_durable(study, trial, event.epoch) and not event.uri:
            raise Refused(f"epoch {event.epoch} of {trial.id} is not in the store yet")
        if event.signature != trial.signature and not self._admits(
            study, trial, event.epoch, event.signature
        ):
            device = self.state.attempts[event.fence].segment.members[0].device
            reason = self._refuse_unlike(study, trial, device, event.signature)
            self._lose(trial, [device], reason)
            self._end_if_stranded(study)
            self._fill()
            return
        places = self._accept(study, trial, event, value)
        if event.closes:
            self._close(study, trial)
        if places:
            self._fill()

    def _compare(self, study: StudyState, trial: Trial, event: EpochReported) -> None:
        """A late report of an accepted epoch is a free check of its bits, and otherwise nothing."""
        accepted = trial.hashes.get(event.epoch, "")
        statistical = study.spec.exactness == "statistical"
        forgotten = event.fence // ERA < self.state.fence // ERA  # it may be of other parameters
        if statistical or not accepted or accepted == event.state_hash or forgotten:
            raise Refused(f"fence {event.fence} of {trial.id} is not the open one")
        study.message = (
            f"{trial.id} epoch {event.epoch}: a repeated run has state {event.state_hash[:12]}, "
            f"accepted was {accepted[:12]}; the training code or the machine is not deterministic"
        )
        self._touch_study(study)

    def _accept(self, study: StudyState, trial: Trial, event: EpochReported, value: float) -> bool:
        """Take the epoch in; True where its device may hold another number of trials by it."""
        trial.epoch = event.epoch
        trial.value = value
        trial.values[event.epoch] = value
        if study.spec.further or study.spec.constraints:
            metrics = dict(event.metrics)
            trial.further = tuple(metrics[each.metric] for each in study.spec.further)
            trial.constraints = tuple(
                (name, metrics[name] - bound) for name, bound in study.spec.constraints
            )
        trial.hashes[event.epoch] = event.state_hash
        trial.state_hash = event.state_hash
        trial.signature = event.signature
        trial.holder = event.holder
        trial.trained_with = trial.system
        trial.failures = trial.losses = 0
        attempt = self.state.attempts[trial.fence]
        members = attempt.segment.members
        for member in members:
            self.state.devices[member.device].losses = 0
        self._saw(study, members)
        places = self._saw_sharing(trial, attempt, event.seconds, event.memory)
        alone = event.seconds / self.state.stretch(attempt)
        attempt.trained += event.seconds
        attempt.began = self._at
        self._follow(trial, len(members))
        self._saw_training(study, trial, event.seconds)
        self.state.tally.saw("accepted")
        self.state.tally.trained += event.seconds
        if event.epoch == attempt.segment.first:
            self.state.tally.saw_first(event.at - attempt.dispatched_at, event.claimed)
        features = self.state.features(trial)
        if self.state.costs.saw_epoch(study.spec.id, trial.id, alone, len(members), features):
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
                joules=event.joules,
                system=trial.trained_with,
            )
        )
        if event.uri:
            self._keep(study, trial, Parent(event.epoch, event.uri, event.state_hash))
        return places

    def _close(self, study: StudyState, trial: Trial) -> None:
        attempt = self._close_attempt(trial)
        seconds = self._at - attempt.dispatched_at
        self.state.costs.saw_segment(seconds, attempt.trained, resized=attempt.resized)
        if trial.epoch < trial.target:
            self._move(study, trial, Step.YIELD)
            self._go_on(study, trial, attempt)
            return
        self.state.dirty = True
        curve = {epoch: study.spec.sign * value for epoch, value in trial.values.items()}
        if trial.epoch >= (study.spec.strategy.max_epochs or UNBOUNDED):
            self._move(study, trial, Step.FINISH)
            self._over(study, trial)
            self._decide(Release, trial=trial.id)
        else:
            self._move(study, trial, Step.REACH)
        self._enter(study, study.strategy.reached(trial.id, trial.epoch, curve))
        self._settle(study)
        self._fill()

    def _go_on(self, study: StudyState, trial: Trial, attempt: Attempt) -> None:
        """Under the standing plan: the next segment follows on the same slots."""
        members = attempt.segment.members
        if (
            study.works
            and not attempt.leaves
            and self._may_stay(study, members)
            and self._width(study, trial) == len(members)
            and not self.state.shuffle
            and not self._gives_way(study, trial, len(members))
            # What took another time than planned with may be at the wrong width.
            and not (self.state.dirty and len(members) > 1)
        ):
            self._dispatch(study, trial, members)
            return
        # Where widths are drawn, a wide trial must not be overtaken for ever by narrow ones.
        self._wait(trial, first=not self.state.shuffle)
        self._fill()

    def _may_stay(self, study: StudyState, members: tuple[Member, ...]) -> bool:
        for member in members:
            if self.state.closed(member.device) or member.device in study.refused:
                return False
        return True

    def _on_replayed(self, event: Replayed) -> None:
        self._check_fence(self._trial(event.trial), event.fence)
        self.state.tally.saw("repeated", max(0, event.last - event.first + 1))

    def _on_trial_returned(self, event: TrialReturned) -> None:
        trial = self._trial(event.trial)
        study = self.state.studies[trial.study]
        self._check_fence(trial, event.fence)
        if event.value is not None and len(event.further) != len(study.spec.further):
            raise Refused(f"{trial.id} returned {1 + len(event.further)} values")
        if event.value is not None:
            trial.value, trial.further = event.value, event.further
        trial.constraints = event.constraints or trial.constraints
        if event.unasked:
            trial.params = tuple(item for item in trial.params if item[0] not in event.unasked)
            names = ", ".join(event.unasked)
            study.message = f"enqueued for {trial.id}, which never asked for it: {names}"
            self._touch_study(study)
        self._close_attempt(trial)
        if event.pruned:
            self._move(study, trial, Step.PRUNE)
        elif trial.value is None:
            trial.failure = Failure("metric", "the objective returned None and reported nothing")
            self._move(study, trial, Step.FAIL)
        else:
            self._move(study, trial, Step.FINISH)
        self._leave(study, trial)

    def _on_attempt_failed(self, event: AttemptFailed) -> None:
        trial = self._trial(event.trial)
        study = self.state.studies[trial.study]
        self._check_fence(trial, event.fence)
        crowded = self._ran_out_of_memory(trial, event)
        trial.failures += not crowded
        failure = Failure(event.kind, event.message, event.traceback)
        self._close_attempt(trial)
        self.state.tally.saw("failed")
        if event.kind == "died":
            self.state.faults.saw_loss()
        if event.kind in ENDS_STUDY:
            trial.failure = failure
            self._move(study, trial, Step.FAIL)
            self._decide(Release, trial=trial.id)
            study.message = f"{trial.id}: {event.message}"
            self._abandon(study, "failed")
        elif (
            crowded
            or self._unfit(study, trial, event)
            or retry_failure(event.kind, event.message, trial.failures, study.spec.retries)
        ):
            self._move(study, trial, Step.RETRY)
            self._wait(trial, first=True)
            self._fill()
        else:
            trial.failure = failure
            self._move(study, trial, Step.FAIL)
            self._leave(study, trial)

    def _unreported(self, study: StudyState) -> str:
        """That so many trials lacked the metric, and none had it, that all will; empty else."""
        trials = self._trials_of(study)
        failures = [t.failure for t in trials if t.failure and t.failure.kind == "metric"]
        if len(failures) < METRIC_LIMIT or any(t.value is not None for t in trials):
            return ""
        words = f"the first {len(failures)} trials ended without {study.spec.metric}"
        return f"{words}, as all would: {failures[0].message}"

    def _ran_out_of_memory(self, trial: Trial, event: AttemptFailed) -> bool:
        """Whether memory may have been short for it only because it shared its device.

        Then it shares none any more: what it needs alone is seen when it is.
        """
        killed = event.kind == "died" and "signal 9" in event.message
        if trial.alone or not (event.kind == "memory" or killed):
            return False
        members = self.state.attempts[event.fence].segment.members
        trial.alone = len(members) == 1 and len(self.state.attempts_on(members[0].device)) > 1
        return trial.alone

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

    def _lose_all(self, device: str, reason: str) -> None:
        # Closed first: what a lost trial sets free must not come back to this device.
        self.state.devices[device].draining = True
        for fence in self._fences_on(device):
            self.state.faults.saw_loss()
            trial = self.state.trials[self.state.attempts[fence].segment.trial]
            self._lose(trial, [device], reason)

    def _lose(self, trial: Trial, at: list[str], reason: str) -> None:
        """The infrastructure lost the attempt ``at`` these devices: to the head of the line."""
        study = self.state.studies[trial.study]
        for name in at:
            device = self.state.devices[name]
            device.losses += 1
            if device.losses >= BACKOFF_AFTER:
                # A power of a thousand losses is more than a float holds.
                rest = min(BACKOFF_LONGEST, 2.0 ** min(device.losses - BACKOFF_AFTER, 9))
                device.backoff_until = self._at + rest
                self._note_device(name, f"{device.losses} losses in a row")
        trial.losses += 1
        self._revoke(trial, "lost")
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
        if why := self._unreported(study):
            study.message = why
            self._abandon(study, "failed")
            return
        self._enter(study, study.strategy.left(trial.id))
        self._settle(study)
        self._fill()

    def _abandon(self, study: StudyState, status: str) -> None:
        """End a study with trials at work: they are fenced off, and what has run stays."""
        for trial in self._trials_of(study):
            if trial.state in FINAL:
                continue
            if trial.fence:
                self._revoke(trial, "cancelled")
            self._move(study, trial, Step.CANCEL)
            self._decide(Release, trial=trial.id)
        self._finish(study, status)
        self._fill()
