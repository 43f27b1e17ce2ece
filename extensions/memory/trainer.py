"""Estimates the memory of trials before they run, and measures trials that run here.

With each segment, the scheduler names the trials to estimate (``SegmentTask.ext``).
"""

from __future__ import annotations

from ...tasks.trainer.hooks import Epoch, Hook, Parts, Segment
from ...tasks.training.loop import CPU, Result
from ...tasks.training.paths import paths_of
from .traces.estimator import Estimator, footprint_body
from .traces.meter import MemoryMeter
from .traces.storages import held_beside

#: The name of the extension.
NAME = "memory"

_MEASURED = "memory was measured"


def hook(parts: Parts) -> Hook:
    """Return the hook of one trainer."""
    return _Footprints()


class _Footprints(Hook):
    def __init__(self) -> None:
        self.estimator = Estimator()
        #: The meters of the epochs that are being trained, by trial.
        self._meters: dict[str, MemoryMeter] = {}

    def before(self, segment: Segment) -> None:
        """Estimate the memory of the trials that the segment names, as far as there is time."""
        run, maker = segment.run, segment.maker
        for each in run.task.ext.get(NAME, {}).get("estimate", ()):
            if not self.estimator.affords_estimate():
                return
            run.preparing()
            task = run.task.model_copy(update=each)
            body = self.estimator.estimate(
                lambda task=task: maker.initial(task, segment.code, CPU),  # type: ignore[misc]
                maker.first_examples(),
            )
            run.say("footprint", of=task.trial, base=run.memory.base, **body)

    def before_epoch(self, epoch: Epoch) -> None:
        """Start to measure the trial's memory in this epoch, once per trial, if there is time.

        On a CPU super-nets are not measured: each step trains another path, so the few measured
        steps say too little.
        """
        run, training = epoch.segment.run, epoch.segment.training
        notes = epoch.segment.warm.notes
        if epoch.measured or _MEASURED in notes or run.members:
            return
        if not self.estimator.affords_measurement():
            return
        notes[_MEASURED] = True
        if training.device.type == "cpu" and paths_of(training.model):
            return
        other_tensors = tuple(held_beside(training.code, training.model))
        meter = MemoryMeter(training.model, training.optimizer, training.device, other_tensors)
        training.meter = self._meters[run.task.trial] = meter
        epoch.measured = True

    def after_epoch(self, epoch: Epoch, result: Result) -> None:
        """Report the memory that the epoch took if it was measured."""
        run = epoch.segment.run
        if (meter := self._meters.pop(run.task.trial, None)) is not None:
            epoch.segment.training.meter = None
            meter.close()
            if (measured := meter.footprint()) is not None:
                self.estimator.measured(meter.seconds)
                body = footprint_body(measured, measured=True)
                run.say("footprint", of=run.task.trial, base=run.memory.base, **body)
        self.estimator.trained(result.seconds)

    def forget(self, trial: str) -> None:
        """Stop measuring a trial that is no longer in memory."""
        if (meter := self._meters.pop(trial, None)) is not None:
            meter.close()
