"""Chooses the trials whose memory is estimated next, and keeps the results.

Theory of operation. A trainer that has a study's code and data loaded also estimates other trials
of the study before they run (``traces.estimator``). So a dispatch names its own trial and the first
waiting trials, as long as they have no estimate. The trainer estimates as many as it has time for.
After ``MAX_UNTRACED`` trials in a row that cannot be traced, no more trials of the study are tried.
"""

from __future__ import annotations

from ...scheduler.model.decisions import Member
from ...scheduler.model.trial import FINAL, Trial, TrialState
from ...scheduler.state.core import Core
from ...scheduler.state.extensions import NO_VALUES, SegmentValues
from ...scheduler.state.next_trials import next_trials
from ...scheduler.state.state import StudyState
from .events import FootprintReported
from .known import NAME, known_study, note_study, note_trial
from .processes import Processes

#: Number of untraceable trials in a row after which no more trials of a study are traced.
MAX_UNTRACED = 3


class Footprints:
    """Keeps the estimated and measured memory of each trial."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def next_segment(
        self, study: StudyState, trial: Trial, members: tuple[Member, ...]
    ) -> SegmentValues:
        """Return, for the next segment of ``trial``, the trials that its trainer is to estimate."""
        record = known_study(self._state, study.spec.id)
        if record.untraced >= MAX_UNTRACED:
            return NO_VALUES

        def is_unknown(each: Trial) -> bool:
            own = record.trials.get(each.id)
            return own is None or own.estimate is None

        estimates = next_trials(self._state, study, trial, is_unknown)
        return SegmentValues(ext={NAME: {"estimate": estimates}}) if estimates else NO_VALUES

    def on_footprint_reported(self, event: FootprintReported) -> None:
        trial = self._keep(event)
        if trial is None:
            return
        # A resident that needs less than its seat's part makes room in its lane.
        members = [each for each in trial.members if each.device in self._state.devices]
        resident = any(self._state.is_beside(member) for member in members)
        if trial.state is TrialState.WAITING or (resident and self._state.ready):
            self._core.offer_slots()

    def _keep(self, event: FootprintReported) -> Trial | None:
        """Keep the reported footprint; return its trial, or None if it has ended or is unknown."""
        reporter = self._core.trial(event.trial)
        self._core.check_training(reporter, event.fence)
        trial = self._state.trials.get(event.of)
        if trial is None or trial.state in FINAL:
            return None
        study = self._state.studies[trial.study]
        device = self._state.devices[reporter.members[0].device].device
        record, own = note_study(self._state, trial.study), note_trial(self._state, trial)
        processes = record.processes.setdefault(device.kind, Processes())
        processes.observe_base(event.base, recurrent=event.recurrent)
        self._core.extensions.tell(study, "on_footprint", trial, event.footprint)
        if event.measured:
            own.measured = event.footprint
            processes.observe_tensors(trial.id, event.footprint, own.estimate)
            return trial
        own.estimate = event.footprint
        record.untraced = record.untraced + 1 if event.failed else 0
        processes.observe_estimate(event.footprint)
        return trial
