"""What epochs and segments cost, as measured: the one place that policies and segmentation read.

Estimates are exponentially weighted means (weight ``ALPHA`` on the newest), per trial and per
study; a trial that has not run yet is estimated by its study, and a study without a single measured
epoch by nothing: the caller gets None and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ALPHA = 0.3
#: Seconds from the end of one segment to the first step of the next, before any was measured.
FIRST_OVERHEAD = 0.005


def _blend(old: float | None, new: float) -> float:
    return new if old is None else old + ALPHA * (new - old)


@dataclass(slots=True)
class CostTable:
    """Seconds an epoch by trial, by study and by width, and seconds of overhead a segment."""

    trials: dict[str, float] = field(default_factory=dict)
    studies: dict[str, float] = field(default_factory=dict)
    widths: dict[str, dict[int, float]] = field(default_factory=dict)
    trial_widths: dict[str, int] = field(default_factory=dict)
    segment_overhead: float = FIRST_OVERHEAD

    def saw_epoch(self, study: str, trial: str, seconds: float, width: int) -> bool:
        """Take in one epoch's training time (seconds) on ``width`` devices.

        True for the study's first at this width: what follows from it is to be planned anew.
        """
        # What a trial took at another width says nothing of this one.
        same = self.trial_widths.get(trial, 1) == width
        self.trials[trial] = _blend(self.trials.get(trial) if same else None, seconds)
        self.trial_widths[trial] = width
        self.studies[study] = _blend(self.studies.get(study), seconds)
        known = self.widths.setdefault(study, {})
        first = width not in known
        known[width] = _blend(known.get(width), seconds)
        return first

    def saw_segment(self, seconds: float, training: float) -> None:
        """Take in one closed segment: dispatched-to-accepted and training time within it (seconds).

        An overhead above a second is a start-up or a fault, not what a segment costs: left out.
        """
        overhead = seconds - training
        if 0.0 <= overhead <= 1.0:
            self.segment_overhead = _blend(self.segment_overhead, overhead)

    def epoch_seconds(self, study: str, trial: str) -> float | None:
        """Expected seconds of one epoch of ``trial``, None when nothing was measured."""
        return self.trials.get(trial, self.studies.get(study))

    def forget(self, trial: str) -> None:
        """Drop a finished trial's own estimate; its study keeps what it taught."""
        self.trials.pop(trial, None)
        self.trial_widths.pop(trial, None)

    def forget_study(self, study: str) -> None:
        """Drop a finished study's estimates."""
        self.studies.pop(study, None)
        self.widths.pop(study, None)

    def speeds(self, study: str) -> tuple[tuple[int, float], ...]:
        """(width, seconds an epoch) of ``study`` as measured, by width."""
        return tuple(sorted(self.widths.get(study, {}).items()))
