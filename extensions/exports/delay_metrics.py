"""Prometheus histograms of how long trials waited and trained.

Only studies that are over are counted, because their trials do not change any more. So each study
is read once in the life of the process, and the counts do not depend on when the process started.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric

from ...app.ledger.reader import Reader
from ...app.show.views.delays import delays_of

#: Upper bounds of the buckets (seconds): from a second to a week.
BOUNDS = (1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0, 604800.0)
#: The metrics, each with its name, its description, and the index of its field in ``TrialDelays``.
METRICS = (
    ("start_delay", "From a study's submission to the first epoch of each of its trials.", 0),
    ("waiting", "Until a trial's first epoch, and between epochs of one rung.", 1),
    ("completion", "From a study's submission to the last epoch of each of its trials.", 2),
)


class DelayHistograms:
    """Counters of the delays of trials, over all studies that have ended."""

    def __init__(self) -> None:
        self._read: set[str] = set()
        self._counts = [[0] * (len(BOUNDS) + 1) for _ in METRICS]
        self._sums = [0.0 for _ in METRICS]

    def update(self, reader: Reader) -> None:
        """Count the trials of studies that have ended since the last call."""
        for study in reader.studies():
            if study.finished_at is None or study.id in self._read:
                continue
            trials, epochs = reader.trials(study.id), reader.epochs(study.id)
            for delays in delays_of(study, trials, epochs):
                for index, (_, _, part) in enumerate(METRICS):
                    if (value := delays[part]) is not None:
                        self._counts[index][bisect_left(BOUNDS, value)] += 1
                        self._sums[index] += value
            self._read.add(study.id)

    def families(self) -> Iterable[Metric]:
        """Yield the histograms as metrics of Prometheus's client library."""
        names = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        for (name, words, _), counts, total in zip(METRICS, self._counts, self._sums, strict=True):
            yield HistogramMetricFamily(
                f"penstock_trial_{name}_seconds",
                words,
                buckets=list(zip(names, accumulate(counts), strict=True)),
                sum_value=total,
            )
