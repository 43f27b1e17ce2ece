"""Reports of epochs: from the report to the next segment.

Theory of operation. A report counts only under all of these conditions: it has the trial's open
fence; it is for the epoch after the last accepted one; if an objective reports it, it names the
draws that were accepted for the trial; it has the metrics that the study asks for; the study admits
its signature; and its state is in the store if other trials may continue from that state. Then the
epoch is accepted: the trial, the estimates and the tallies are updated, and the epoch's row is
noted for the ledger. If the epoch closes its segment, the trial either continues where it is, waits
for another place, or has reached its target; in the last case the trial's strategy decides the next
step.

To follow an epoch, start at ``on_epoch_reported``: each part that an epoch concerns is called by
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ..model.decisions import Member, Parent
from ..model.events import EpochReported, Remarked, Replayed
from ..model.trial import AcceptedEpoch, Step, Trial
from ..planning.planning import Planning
from ..resources.fair_share import FairShare
from ..resources.giving_way import GivingWay
from ..state.core import Core, Refused
from ..state.slot_time import settle
from ..state.state import ERA, Attempt, StudyState, Waits
from .attempts import Attempts
from .checkpoints import Checkpoints
from .dispatch import Dispatcher
from .proposals import Proposals
from .signatures import Signatures


class Epochs:
    """Handles reports of epochs."""

    def __init__(
        self,
        core: Core,
        *,
        checkpoints: Checkpoints,
        shares: FairShare,
        planning: Planning,
        giving_way: GivingWay,
        signatures: Signatures,
        proposals: Proposals,
        dispatcher: Dispatcher,
        attempts: Attempts,
    ) -> None:
        self._core = core
        self._state = core.state
        self._checkpoints = checkpoints
        self._shares = shares
        self._planning = planning
        self._giving_way = giving_way
        self._signatures = signatures
        self._proposals = proposals
        self._dispatcher = dispatcher
        self._attempts = attempts

    def on_epoch_reported(self, event: EpochReported) -> None:
        trial = self._core.trial(event.trial)
        study = self._state.studies[trial.study]
        if event.fence != trial.fence:
            self._compare(study, trial, event)
            return
        attempt = self._state.attempts.get(event.fence)
        if attempt is None:
            raise Refused(f"{trial.id} has no open attempt")
        if attempt.segment.widths:
            raise Refused(f"{trial.id} was to measure widths, and to train no epoch")
        if event.epoch != trial.epoch + 1:
            raise Refused(f"epoch {event.epoch} of {trial.id} after {trial.epoch} accepted")
        if event.draws_digest:
            self._core.check_draws(trial, event.draws_digest)
        metrics = dict(event.metrics)
        value = metrics.get(study.spec.metric)
        also = study.spec.also
        missing = [name for name in also if name not in metrics] if also else []
        if value is None or missing:
            raise Refused(
                f"a report of {trial.id} without {', '.join(missing) or study.spec.metric}"
            )
        at_target = event.epoch == trial.target
        if at_target and not event.uri and self._checkpoints.target_must_be_durable(study, trial):
            raise Refused(f"epoch {event.epoch} of {trial.id} is not in the store yet")
        machine_known = bool(study.signature)
        if event.signature != trial.signature and not self._signs(study, trial, attempt, event):
            return
        capacity_changed = self._accept(study, trial, attempt, event, metrics)
        if study.signature and not machine_known:
            self._core.extensions.tell(study, "on_machine_known")
        if event.closes:
            if self._state.cross_study and trial.epoch < trial.target:
                self._planning.reconsider()
            self._close(study, trial)
        if capacity_changed:
            self._core.offer_slots()

    def _signs(
        self, study: StudyState, trial: Trial, attempt: Attempt, event: EpochReported
    ) -> bool:
        """Check the numeric signature of an epoch; return True if the study accepts it.

        An accepted signature is recorded as the trial's signature. If the signature is not
        accepted, the device is excluded from the study, and the trial continues elsewhere.
        """
        if self._signatures.accepts(study, trial, event.signature):
            self._signatures.record(study, trial, event.epoch, event.signature)
            return True
        device = attempt.segment.members[0].device
        reason = self._signatures.exclude(study, trial, device, event.signature)
        self._attempts.lose(trial, [device], reason)
        self._attempts.end_if_stuck(study)
        self._core.offer_slots()
        return False

    def _compare(self, study: StudyState, trial: Trial, event: EpochReported) -> None:
        """Compare a late report of an epoch with the state that was accepted for this epoch.

        The epoch was computed twice, so comparing the bits costs nothing. The late report has no
        other effect.
        """
        accepted = trial.hashes.get(event.epoch, "")
        statistical = study.spec.exactness == "statistical"
        before_restore = event.fence // ERA < self._state.fence // ERA  # may have other parameters
        if statistical or not accepted or accepted == event.state_hash or before_restore:
            raise Refused(f"fence {event.fence} of {trial.id} is not the open one")
        study.message = (
            f"{trial.id} epoch {event.epoch}: a repeated run has state {event.state_hash[:12]}, "
            f"accepted was {accepted[:12]}; the training code or the machine is not deterministic"
        )
        self._core.touch_study(study)

    def _accept(
        self,
        study: StudyState,
        trial: Trial,
        attempt: Attempt,
        event: EpochReported,
        metrics: Mapping[str, float],
    ) -> bool:
        """Accept the epoch.

        Return True if the epoch's measurements change the number of trials that its device may
        train at the same time.
        """
        self._core.accept(study, trial, event.epoch, metrics, event.state_hash)
        trial.holder = event.holder
        trial.signature = event.signature
        trial.trained_with = trial.system
        trial.failures = trial.losses = 0
        members = attempt.segment.members
        for member in members:
            self._state.devices[member.device].losses = 0
        self._signatures.observe(study, members)
        alone, capacity_changed = event.alone or event.seconds, False
        if event.together > 1 or self._state.devices[members[0].device].device.slots > 1:
            alone, capacity_changed = self._beside_others(study, trial, attempt, event)
        first = event.epoch == attempt.segment.first
        if not first:
            attempt.between += self._core.at - attempt.began - event.seconds
        attempt.trained += event.seconds
        began = None if attempt.counted_at is None else attempt.began
        attempt.began = self._core.at
        if attempt.accompanied or event.together != 1 or event.readers or event.company:
            learnt = self._core.extensions.fused_groups.observe(study, attempt, event)
            capacity_changed = capacity_changed or learnt
        if attempt.counted_at is not None:
            settle(self._state, attempt, self._core.at)
            attempt.epoch_from = attempt.in_turn
        self._core.charge(attempt, event.joules or 0.0)
        if trial.id in self._state.courses:
            self._planning.count_epoch(trial, len(members))
        if study.spec.id in self._core.extensions.by_study:
            self._core.extensions.tell(study, "on_trained", trial, event.seconds)
        self._state.tally.observe("accepted")
        self._state.tally.trained += event.seconds
        if self._state.cross_study:
            waits = self._state.waits.setdefault(trial.id, Waits())
            waits.service += event.seconds * len(members)
        if first and not attempt.accompanied:
            self._state.tally.observe_first(event.at - attempt.dispatched_at, event.claimed)
        features = partial(self._state.features_of, trial)
        if self._state.costs.observe_epoch(study.spec.id, trial.id, alone, len(members), features):
            self._core.invalidate_plan()
        self._core.changes.epochs.append(
            AcceptedEpoch(
                trial=trial.id,
                epoch=event.epoch,
                value=metrics[study.spec.metric],
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
                length=attempt.length if first else None,
                began=began,
            )
        )
        if event.uri:
            self._checkpoints.keep(study, trial, Parent(event.epoch, event.uri, event.state_hash))
        if study.spec.id in self._core.extensions.by_study:
            self._core.extensions.tell(study, "on_accepted", trial, attempt, event)
        return capacity_changed

    def _beside_others(
        self, study: StudyState, trial: Trial, attempt: Attempt, event: EpochReported
    ) -> tuple[float, bool]:
        """Tell extensions about an epoch that was trained next to other trials.

        This is an epoch in a fused group, or on a device with several slots. Return two values: the
        estimated seconds that the epoch would have taken alone, and True if the number of trials
        that the device may train at the same time has changed.
        """
        members, changed = attempt.segment.members, False
        if self._state.devices[members[0].device].device.slots > 1 and len(members) == 1:
            changed = self._core.extensions.on_shared(trial, attempt, event)
        slowdown = self._state.slowdown(attempt)
        ratio = self._state.costs.group_slowdown(study.spec.id, event.together)
        return (event.alone or event.seconds / ratio) / slowdown, changed

    def _close(self, study: StudyState, trial: Trial) -> None:
        attempt = self._core.close_attempt(trial)
        if not attempt.accompanied:  # else it is not known what was overhead
            outside = self._core.at - attempt.dispatched_at - attempt.trained
            self._state.costs.observe_segment(
                study.spec.id,
                outside - attempt.between,
                attempt.between,
                trial.epoch + 1 - attempt.segment.first,
                start=attempt.start,
                resized=attempt.resized,
            )
        if trial.epoch < trial.target:
            self._core.move(study, trial, Step.YIELD)
            extended = study.spec.id in self._core.extensions.by_study
            if extended and self._core.extensions.keeps(study, trial, attempt):
                self._core.offer_slots()
                return
        if trial.epoch < trial.target:
            self._continue_trial(study, trial, attempt)
            return
        self._core.invalidate_plan()
        self._proposals.enter(study, self._proposals.reached(study, trial))
        self._proposals.settle(study)
        self._core.offer_slots()

    def _continue_trial(self, study: StudyState, trial: Trial, attempt: Attempt) -> None:
        """Dispatch the next segment on the same slots if the plan holds, else queue the trial."""
        if study.ends(trial):
            self._proposals.wait(trial)
            self._core.offer_slots()
            return
        members, width = attempt.segment.members, len(attempt.segment.members)
        is_held = trial.id in self._state.hold and self._giving_way.can_give_way(trial)
        preempted = is_held
        if study.share is not None and not is_held:
            preempted = self._shares.should_yield(study, trial, attempt.part * width)
        if (
            study.runnable
            and not attempt.leaves
            and self._may_continue_on(study, members)
            and self._planning.width(study, trial) == width
            and trial.id not in self._state.windows
            and not preempted
            # If the estimates changed, its width may be wrong.
            and not (self._state.dirty and width > 1)
        ):
            self._dispatcher.dispatch(study, trial, members, at_once=True)
            return
        if preempted and not attempt.cut:
            self._state.preemptions.observe_preemption()
        if is_held:
            self._giving_way.give_way(trial)
        else:
            self._proposals.wait(trial, first=True)
        self._core.offer_slots()

    def _may_continue_on(self, study: StudyState, members: tuple[Member, ...]) -> bool:
        for member in members:
            if self._state.cordoned(member.device) or member.device in study.refused:
                return False
        return True

    def on_remarked(self, event: Remarked) -> None:
        self._core.check_fence(self._core.trial(event.trial), event.fence)

    def on_replayed(self, event: Replayed) -> None:
        self._core.check_fence(self._core.trial(event.trial), event.fence)
        self._state.tally.observe("repeated", max(0, event.last - event.first + 1))
