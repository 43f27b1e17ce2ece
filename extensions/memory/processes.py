"""The predicted process memory of a study's trials on one kind of device.

Theory of operation. The memory of a trial's process is predicted from the estimated or measured
bytes of its tensors (``resident``). An estimate of tensors gets a margin that follows from the
errors of the study's earlier estimates (``margin``). The amount by which a process may exceed its
prediction (its *doubt*) is judged in the same way, but kept separate: of several trials on a
device, rarely more than one exceeds its prediction by its whole doubt.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from ...base.footprint import Footprint
from .margin import OTHERS, margin
from .resident import MOST, SLOPE, Grown, resident_bytes, slope

T = TypeVar("T")


@dataclass(slots=True)
class Processes:
    """Measurements of the process memory of a study's trials on one kind of device."""

    #: The last seen bytes of a process before a trial; 0 if not known, and on a GPU.
    base: int = 0
    #: The newest measured trials, by trial id. ``process`` is 0 before the first epoch.
    grown: dict[str, Grown] = field(default_factory=dict)
    #: The relative errors of the newest estimates, by trial id.
    errors: dict[str, float] = field(default_factory=dict)
    #: The tensors of the largest measured trial.
    largest: Footprint | None = None
    #: True if a model of the study has recurrent layers.
    recurrent: bool = False
    #: The smallest and largest need (bytes) expected of a trial before it ran; 0 if there is none.
    least: int = 0
    most: int = 0
    #: ``resident.slope`` of ``grown``.
    slope: float = SLOPE
    #: ``margin.margin`` of ``errors``.
    margin: float = OTHERS
    #: ``margin.margin`` of the errors of predicted process memory, for the trials in ``grown``.
    doubt: float = OTHERS

    def expected(self, of: Footprint, *, estimated: bool) -> int:
        """Return the expected bytes of a trial's process, given its tensors; 0 if not known."""
        if not self.base or not of.peak:
            return 0
        peak = of.peak * (1.0 + self.margin) if estimated else of.peak
        return resident_bytes(self.base, peak, self.slope)

    def observe_estimate(self, estimate: Footprint) -> None:
        """Record the estimate of a trial that has not run."""
        expected = self.expected(estimate, estimated=True)
        if expected:
            self.least = min(self.least or expected, expected)
            self.most = max(self.most, expected)

    def observe_base(self, base: int, *, recurrent: bool) -> None:
        """Record a process's bytes before a trial, and whether the trial's model is recurrent."""
        self.base = base or self.base
        if recurrent and not self.recurrent:
            self.recurrent = True
            self._judge()

    def observe_tensors(self, trial: str, measured: Footprint, estimate: Footprint | None) -> None:
        """Record the measured tensors of a trial, and the trial's estimate if there is one."""
        if self.largest is None or measured.peak > self.largest.peak:
            self.largest = measured
        if estimate is not None and estimate.peak:
            _keep(self.errors, trial, measured.peak / estimate.peak - 1)
            self._judge()
        if self.base and measured.peak:
            _keep(self.grown, trial, Grown(measured.peak, self.base, 0))

    def observe_process(self, trial: str, process: int) -> None:
        """Record the peak so far of the bytes of a trial's process."""
        record = self.grown.get(trial)
        if record is not None and process > record.process:
            self.grown[trial] = replace(record, process=process)
            measured = [each for each in self.grown.values() if each.process]
            self.slope = slope(measured)
            expected = [resident_bytes(each.base, each.peak, self.slope) for each in measured]
            errors = [
                each.process / size - 1 for each, size in zip(measured, expected, strict=True)
            ]
            self.doubt = margin(errors)

    def _judge(self) -> None:
        self.margin = margin([*self.errors.values()], recurrent=self.recurrent)


def _keep(newest: dict[str, T], trial: str, value: T) -> None:
    newest.pop(trial, None)
    newest[trial] = value
    if len(newest) > MOST:
        newest.pop(next(iter(newest)))
