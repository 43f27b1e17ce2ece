"""Measure this process's work between two marks, by counters sampled every second.

    profiler = Profiler.start()
    profiler.mark()
    ...                       # some steps of training
    reading = profiler.take().with_loop(wait_s, samples)

A thread reads the counters every second, so that hardware counters take turns and a corrupt sample
is recognised. ``mark`` and ``take`` read them as well, so that a window begins and ends exactly
where the training loop calls these.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from ...profiling.counters.capabilities import open_sources
from ...profiling.counters.gpu import GpuSource
from ...profiling.counters.rates import Reading, max_rates, reading
from ...profiling.counters.source import Source
from ...profiling.counters.windows import CounterWindow, Sample

#: Seconds between two samples.
PERIOD = 1.0


class Profiler:
    """Windows over the counters of ``sources``. Any thread may call the methods.

    ``dropped`` counts the counters that were missing from windows since the start, by reason.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        clock: Callable[[], float] = time.monotonic,
        cores: int | None = None,
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._most = max_rates(cores or os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._window = CounterWindow(self._sample(), self._most)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.dropped: Counter[str] = Counter()

    @classmethod
    def start(cls, gpu: str | None = None) -> Profiler:
        """Start to sample this process, and the GPU with this UUID.

        Call it early in the process: a thread is measured only if the thread that started it is. A
        counter that cannot be measured here raises nothing; ``profiling.counters.capabilities``
        gives the reasons.
        """
        gpus = () if gpu is None else (GpuSource(gpu),)
        profiler = cls((*open_sources(time.monotonic()), *gpus))
        profiler._thread = threading.Thread(target=profiler._run, name="profiler", daemon=True)
        profiler._thread.start()
        return profiler

    def mark(self) -> None:
        """Begin a new window."""
        with self._lock:
            self._window = CounterWindow(self._sample(), self._most)

    def take(self) -> Reading:
        """Return the window from the mark (or the start) until now. The window continues."""
        with self._lock:
            self._window.add(self._sample())
            values = reading(self._window)
            self.dropped.update(values.dropped.values())
        return values

    def sample(self) -> None:
        """Read all counters once. The profiler's thread calls this every second."""
        with self._lock:
            self._window.add(self._sample())

    def stop(self) -> None:
        """End the thread and close the sources. A stopped profiler cannot be used again."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for source in self._sources:
                source.close()

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD):
            self.sample()

    def _sample(self) -> Sample:
        now = self._clock()
        readings = [source.read(now) for source in self._sources]
        counts = {name: count for each in readings for name, count in each.counts.items()}
        gauges = {name: value for each in readings for name, value in each.gauges.items()}
        return Sample(now, counts, gauges)
