"""What memory each trial needs: which trials are to be estimated next, and what was found.

Theory of operation. A trainer that has a study's code and data loaded estimates other trials of the
study, too, before they run (``tasks.memory``). So a dispatch names its own trial and the first ones
that wait, as long as nothing is known of them. The trainer does what it has the time for. Code that
cannot be traced is not tried for ever.
"""

from __future__ import annotations

from ...profiling.memory.processes import Processes
from ..model.decisions import TrialRef
from ..model.events import FootprintReported
from ..model.trial import FINAL, Trial, TrialState
from ..state.architectures import named, relate_tensors
from ..state.core import Core
from ..state.state import StudyState
from .lanes import in_use

#: After so many trials that could not be traced, and none that could, a study's are left alone.
MAX_UNTRACED = 3


class Footprints:
    """Keeps what is known of each trial's memory."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def unknown(self, study: StudyState, trial: Trial) -> tuple[TrialRef, ...]:
        """The trials to estimate with the next segment of ``trial``."""
        if study.spec.contract != "torch" or study.untraced >= MAX_UNTRACED:
            return ()
        return named(self._state, study, trial, lambda each: each.estimate is None)

    def on_footprint_reported(self, event: FootprintReported) -> None:
        trial = self._keep(event)
        if trial is None:
            return
        # A resident that needs less than its seat's part makes room in its lane.
        there = [each for each in trial.members if each.device in self._state.devices]
        resident = any(in_use(self._state, member) for member in there)
        if trial.state is TrialState.WAITING or (resident and self._state.ready):
            self._core.offer_slots()

    def _keep(self, event: FootprintReported) -> Trial | None:
        """Keep what was found; returns the trial, unless it is over or unknown."""
        reporter = self._core.trial(event.trial)
        self._core.check_training(reporter, event.fence)
        trial = self._state.trials.get(event.of)
        if trial is None or trial.state in FINAL:
            return None
        study = self._state.studies[trial.study]
        device = self._state.devices[reporter.members[0].device].device
        known = study.processes.setdefault(device.kind, Processes())
        known.observe_base(event.base, recurrent=event.recurrent)
        relate_tensors(study, trial, event.footprint)
        if event.measured:
            trial.measured = event.footprint
            known.observe_tensors(trial.id, event.footprint, trial.estimate)
            return trial
        trial.estimate = event.footprint
        study.untraced = study.untraced + 1 if event.failed else 0
        known.observe_estimate(event.footprint)
        return trial
