"""What epochs and segments cost, as measured: the one place that policies and segmentation read.

Estimates are exponentially weighted means (weight ``ALPHA`` on the newest), per trial and per
study; a trial that has not run yet is estimated by its study, and a study without a single measured
epoch by nothing: the caller gets None and says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .fitting import fit
from .speed import Measured, packed

ALPHA = 0.3
#: An estimate that moved by this factor since it was last planned with is to be planned anew.
MOVED = 1.25
#: Seconds of a resize before any was measured (docs/measured.md: 17 to 100 ms by the state's size).
FIRST_RESIZE = 0.06
#: An epoch is taken to last this long at least (seconds): what does nothing has no ratios.
LEAST = 1e-6
#: A width that was not measured is expected this many standard deviations slower than estimated.
CAUTION = 0.5
#: Seconds from the end of one segment to the first step of the next, before any was measured.
FIRST_OVERHEAD = 0.005


def _blend(old: float | None, new: float) -> float:
    return new if old is None else old + ALPHA * (new - old)


@dataclass(slots=True)
class CostTable:
    """Seconds an epoch by trial, by study and by width, and seconds of a segment and of a resize.

    ``shapes`` are (width, seconds an epoch there over those on one device), worked out from the
    means that stood then: ``anchors``, by study and width.
    """

    trials: dict[str, float] = field(default_factory=dict)
    studies: dict[str, float] = field(default_factory=dict)
    widths: dict[str, dict[int, float]] = field(default_factory=dict)
    trial_widths: dict[str, int] = field(default_factory=dict)
    segment_overhead: float = FIRST_OVERHEAD
    resize: float = FIRST_RESIZE
    anchors: dict[str, dict[int, float]] = field(default_factory=dict)
    shapes: dict[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)

    def saw_epoch(self, study: str, trial: str, seconds: float, width: int) -> bool:
        """Take in one epoch's training time (seconds) on ``width`` devices.

        True where what follows from it is to be planned anew: it is the study's first at this
        width, or the mean there has moved.
        """
        seconds = max(LEAST, seconds)
        # What a trial took at another width says nothing of this one.
        same = self.trial_widths.get(trial, 1) == width
        self.trials[trial] = _blend(self.trials.get(trial) if same else None, seconds)
        self.trial_widths[trial] = width
        self.studies[study] = _blend(self.studies.get(study), seconds)
        known = self.widths.setdefault(study, {})
        known[width] = _blend(known.get(width), seconds)
        anchor = self.anchors.get(study, {}).get(width)
        if anchor is not None and 1 / MOVED < known[width] / anchor < MOVED:
            return False
        self.anchors.setdefault(study, {})[width] = known[width]
        self.shapes.pop(study, None)
        return True

    def saw_segment(self, seconds: float, training: float, *, resized: bool) -> None:
        """Take in one closed segment: dispatched-to-accepted and training time within it (seconds).

        ``resized``: it began with a resize. Of others an overhead above a second is a start-up or a
        fault, not what a segment costs: left out.
        """
        overhead = seconds - training
        if resized:
            self.resize = _blend(self.resize, max(0.0, overhead - self.segment_overhead))
        elif 0.0 <= overhead <= 1.0:
            self.segment_overhead = _blend(self.segment_overhead, overhead)

    def epoch_seconds(self, study: str, trial: str) -> float | None:
        """Expected seconds of one epoch of ``trial``, None when nothing was measured."""
        return self.trials.get(trial, self.studies.get(study))

    def expected(
        self, study: str, trial: str, widest: int
    ) -> tuple[float | None, tuple[tuple[int, float], ...]]:
        """Seconds of an epoch of ``trial`` on one device, and how that changes with the width.

        The former is None as in ``epoch_seconds``; the latter (width, seconds over those on one
        device) for widths 1 to ``widest``. The trials of a study have it in common: measured widths
        as they were measured, the others by the fitted model, with caution.
        """
        shape = self._shape(study, widest)
        factors = dict(shape)
        own = self.trials.get(trial)
        if own is not None:
            return own / factors.get(self.trial_widths[trial], 1.0), shape
        known = self.widths.get(study)
        if not known:
            return None, shape
        narrowest = min(known)
        return known[narrowest] / factors.get(narrowest, 1.0), shape

    def seconds_at(self, study: str, trial: str, width: int) -> float | None:
        """Expected seconds of one epoch of ``trial`` on ``width`` devices; None as ``expected``."""
        level, shape = self.expected(study, trial, width)
        return None if level is None else level * shape[-1][1]

    def _shape(self, study: str, widest: int) -> tuple[tuple[int, float], ...]:
        if widest == 1:
            return ((1, 1.0),)
        shape = self.shapes.get(study, ())
        if len(shape) < widest:
            shape = self.shapes[study] = self._fitted(study, widest)
        return shape[:widest]

    def _fitted(self, study: str, widest: int) -> tuple[tuple[int, float], ...]:
        known = self.anchors.get(study) or {1: 1.0}
        model = fit(Measured(packed(width), seconds) for width, seconds in known.items())
        curve = []
        for each in model.curve(widest):
            width = each.place.width
            caution = 0.0 if width in known or width == 1 else CAUTION * each.deviation
            curve.append((width, each.seconds * math.exp(caution)))
        return tuple((width, seconds / curve[0][1]) for width, seconds in curve)

    def forget(self, trial: str) -> None:
        """Drop a finished trial's own estimate; its study keeps what it taught."""
        self.trials.pop(trial, None)
        self.trial_widths.pop(trial, None)

    def forget_study(self, study: str) -> None:
        """Drop a finished study's estimates."""
        self.studies.pop(study, None)
        self.widths.pop(study, None)
        self.anchors.pop(study, None)
        self.shapes.pop(study, None)

    def speeds(self, study: str) -> tuple[tuple[int, float], ...]:
        """(width, seconds an epoch) of ``study`` as measured, by width."""
        return tuple(sorted(self.widths.get(study, {}).items()))
