"""The predicted process memory of a study's trials on one kind of device.

Theory of operation. A trial whose tensors are estimated or measured needs the process that such
tensors make (``resident``). An estimate of tensors gets the margin that the study's earlier ones
ask for (``margin``). What a process may have beyond what is expected of it (its *doubt*) is judged
in the same way, but stays apart: of several trials on a device, hardly more than one is so wrong.
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

    #: Bytes that a process had before a trial, as seen last; 0 if not known, and on a GPU.
    base: int = 0
    #: The newest trials whose tensors were measured, by trial. ``process`` is 0 before an epoch.
    grown: dict[str, Grown] = field(default_factory=dict)
    #: The relative errors of the newest estimates, by trial.
    errors: dict[str, float] = field(default_factory=dict)
    #: The tensors of the largest trial that was measured.
    largest: Footprint | None = None
    #: True if its models have recurrent layers.
    recurrent: bool = False
    #: The least and the most that a trial was expected to need before it ran (bytes); 0: none was.
    least: int = 0
    most: int = 0
    #: ``resident.slope`` of ``grown``.
    slope: float = SLOPE
    #: ``margin.margin`` of ``errors``.
    margin: float = OTHERS
    #: The same of the processes of ``grown``, by ``slope``.
    doubt: float = OTHERS

    def expected(self, of: Footprint, *, estimated: bool) -> int:
        """Return the bytes of the process of a trial with tensors ``of``; 0 if not known."""
        if not self.base or not of.peak:
            return 0
        peak = of.peak * (1.0 + self.margin) if estimated else of.peak
        return resident_bytes(self.base, peak, self.slope)

    def observe_estimate(self, estimate: Footprint) -> None:
        """Take in the estimate of a trial that has not run."""
        expected = self.expected(estimate, estimated=True)
        if expected:
            self.least = min(self.least or expected, expected)
            self.most = max(self.most, expected)

    def observe_base(self, base: int, *, recurrent: bool) -> None:
        """Take in a process's bytes before a trial, and if its model has recurrent layers."""
        self.base = base or self.base
        if recurrent and not self.recurrent:
            self.recurrent = True
            self._judge()

    def observe_tensors(self, trial: str, measured: Footprint, estimate: Footprint | None) -> None:
        """Take in the measured tensors of a trial, with their estimate if there is one."""
        if self.largest is None or measured.peak > self.largest.peak:
            self.largest = measured
        if estimate is not None and estimate.peak:
            _keep(self.errors, trial, measured.peak / estimate.peak - 1)
            self._judge()
        if self.base and measured.peak:
            _keep(self.grown, trial, Grown(measured.peak, self.base, 0))

    def observe_process(self, trial: str, process: int) -> None:
        """Take in the bytes of a trial's process at its peak so far."""
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
