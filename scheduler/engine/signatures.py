"""Decisions about numeric signatures: which devices may compute for a study.

A numeric signature is a text that names everything on which the bits of a result depend.

Theory of operation. The first accepted epoch of a study fixes the machine's part of the signature
(``profiling.devices.signature``) for all trials of the study. So a trial's bits do not depend on
the device on which the trial began. Each task contains this signature. A trainer on a machine with
another signature refuses the task before it trains. If an epoch is reported under another signature
nevertheless, it is not accepted. A device with another signature gets no more work of the study
until it joins again. If a study has ``on_signature_change="record"``, such epochs are accepted, and
the change is recorded.

Members of a gang compare their signatures before the first epoch. A member that differs from rank 0
reports this. That report fixes the study's signature as well, so that two gangs cannot rule each
other out.
"""

from __future__ import annotations

from ...profiling.devices.signature import agree, machine_of, refined
from ..model.decisions import Member
from ..model.events import AttemptLost
from ..model.study import OVER
from ..model.trial import Trial
from ..state.core import Core
from ..state.state import StudyState


class Signatures:
    """Decides which signatures count, and remembers which devices have a different one."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def accepts(self, study: StudyState, trial: Trial, signature: str) -> bool:
        """Return True if the trial's next epoch counts when it is computed under ``signature``."""
        return study.spec.on_signature_change == "record" or _agrees(study, trial, signature)

    def record(self, study: StudyState, trial: Trial, epoch: int, signature: str) -> None:
        """Note the trial's new signature, as its next epoch is about to be accepted.

        The first signature of a study becomes the study's signature. A signature that differs from
        the trial's last one is reported in the study's message.
        """
        if _agrees(study, trial, signature):
            study.signature = refined(study.signature, machine_of(signature))
            return
        previous = trial.signature or study.signature
        study.message = (
            f"{trial.id} epoch {epoch} was computed under {signature}, before: {previous}"
        )
        self._core.touch_study(study)

    def observe(self, study: StudyState, members: tuple[Member, ...]) -> None:
        """Note that the devices of ``members`` compute under the study's signature.

        Call it when an epoch of theirs was accepted.
        """
        if study.signature and not study.spec.environment:
            for member in members:
                self._state.devices[member.device].machine = study.signature
        if study.signature and study.spec.on_signature_change == "refuse":
            for member in members:
                study.machines.setdefault(member.device, study.signature)

    def exclude(self, study: StudyState, trial: Trial, device: str, signature: str) -> str:
        """Exclude a device, whose signature is ``signature``, from the study; return the reason."""
        machine = machine_of(signature)
        reason = f"it computes under {signature}, the trial under "
        reason += trial.signature or study.signature
        # Equal machines may still differ in the trial's part, when the code was edited.
        study.machines[device] = signature if agree(machine, study.signature) else machine
        study.refused[device] = reason
        study.message = f"{device} refused {trial.id}: {reason}"
        self._core.touch_study(study)
        return reason

    def exclude_differing(
        self, study: StudyState, trial: Trial, event: AttemptLost, members: tuple[Member, ...]
    ) -> list[str]:
        """Handle a member's report that its signature differs; return the device to exclude.

        The device is the member's, or that of rank 0 if the member has the study's signature.
        """
        study.signature = refined(study.signature, machine_of(event.expected))
        rank = next((rank for rank in event.ranks if rank < len(members)), 0)
        device, signature = members[rank].device, event.signature
        if agree(machine_of(signature), study.signature):
            device, signature = members[0].device, event.expected
        self.exclude(study, trial, device, signature)
        return [device]

    def is_stuck(self, study: StudyState) -> bool:
        """Return True if the study can never continue, and say so in the study's message.

        The study can never continue if all joined devices are excluded, and no device that computed
        under the study's signature can join again.
        """
        if study.status in OVER:
            return False
        if any(agree(study.signature, machine) for machine in study.machines.values()):
            return False
        excluded = [name for name in self._state.devices if name in study.refused]
        if not excluded or len(excluded) < len(self._state.devices):
            return False
        if not study.machines.keys() >= set(excluded):
            return False
        listed = ", ".join(f"{name} under {study.machines[name]}" for name in excluded)
        study.message = (
            f"no device computes under the study's signature {study.signature} any more: {listed}."
            " What was accepted stays. For these devices make a new study, or one that takes the"
            ' break: create_study(resources=penstock.Resources(on_signature_change="record"))'
        )
        return True


def _agrees(study: StudyState, trial: Trial, signature: str) -> bool:
    """Return True if an epoch of the trial under ``signature`` may count as equal.

    The machine's part must agree with the study's signature. The trial's own signature, if it has
    one, must agree as well, unless a system parameter changed since.
    """
    if not (trial.signature or study.signature):
        return True
    if not agree(machine_of(signature), study.signature):
        return False
    # If a knob was turned, the difference is the engine's own doing.
    turned = trial.system != trial.trained_with
    return turned or not trial.signature or agree(signature, trial.signature)
