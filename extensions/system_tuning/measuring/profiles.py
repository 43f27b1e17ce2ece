"""The profile of an epoch: counters read while it is trained, and the operators of one step.

Profiling costs the start of the counters (once per process), one sample per second, and one of the
epoch's steps under torch's profiler. It adds no step.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ....profiling.similarity.profile import profile_of
from ....tasks.system.profiler import Profiler
from ....tasks.training.data import length
from ....tasks.training.loop import Result
from ....tasks.training.training import Training

if TYPE_CHECKING:
    from ....profiling.similarity.history import Profile


class Profiles:
    """Profiles epochs of this process. The counters are started for the first of them."""

    def __init__(self) -> None:
        self._profiler: Profiler | None = None

    def begin(self, training: Training) -> None:
        """Start to profile the next epoch."""
        if self._profiler is None:
            self._profiler = Profiler.start(os.environ.get("CUDA_VISIBLE_DEVICES") or None)
        training.counts = {}
        training.waited = 0.0
        self._profiler.mark()

    def end(self, training: Training, result: Result) -> Profile:
        """Return the profile of the epoch. Values that could not be measured are absent."""
        assert self._profiler is not None
        reading = self._profiler.take()
        examples = length(training.data.train)
        reading = reading.with_loop(min(training.waited, reading.seconds), examples)
        steps = -(-examples // training.batch_size)
        calls, training.counts = training.counts or {}, None
        return profile_of(reading.values, calls, steps / result.seconds if result.seconds else None)
