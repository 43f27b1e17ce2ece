"""The times for which trials waited and trained, from rows of the ledger or of a simulation.

Times are in seconds since the submission of the trial's study:

- the *start delay* ends when the trial's first epoch begins;
- the *waiting* is the sum of the start delay, the time between two epochs of one rung, and the
  time without a turn within epochs of a trial that shares a lane (a process that trains several
  trials in turn);
- the *completion* ends with the trial's last epoch;
- the *slowdown* is the completion divided by the training time of the trial's epochs.

A trial can take an epoch over from another trial that trained the same epoch. Such an epoch counts
with the time that the other trial trained it. While a trial waits for such an epoch, as a companion
of the other trial, it does not wait for a device.

A start delay alone says little. A policy that gives every trial one epoch at once makes the start
delay small and the completion large. So the four times are always shown together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from ....scheduler.model.trial import FINAL
from ....scheduler.strategies.base import pauses_of
from ...common.text import duration
from ...extensions import of_ends

if TYPE_CHECKING:
    from ....scheduler.model.trial import AcceptedEpoch
    from ...ledger.rows import EpochRow, StudyRow, TrialRow

    #: An accepted epoch, in the form of the engine or of the ledger.
    Epoch = AcceptedEpoch | EpochRow


class TrialDelays(NamedTuple):
    """The times of one trial in seconds. ``completion`` is None while the trial is not over."""

    start: float
    waiting: float
    completion: float | None
    trained: float


@dataclass(frozen=True, slots=True)
class Completion:
    """Statistics of several trials: their completion times in seconds and their mean slowdown."""

    trials: int
    mean: float
    median: float
    p95: float
    slowdown: float


@dataclass(frozen=True, slots=True)
class Delays:
    """Mean times, in seconds, of the trials that have begun.

    ``completion`` covers only the trials that are over. It is None if no trial is over.
    """

    trials: int
    start: float
    waiting: float
    completion: Completion | None


def trial_delays(
    submitted: float,
    epochs: Iterable[Epoch],
    rungs: Collection[int] = (),
    over: Collection[str] | None = None,
) -> list[TrialDelays]:
    """Return the times of all trials that have an epoch.

    ``submitted`` is the time of the study's submission. ``over`` contains the ids of the trials
    that are over. None means that all trials are over. A trial does not wait for a device between
    an epoch in ``rungs`` and the trial's next epoch.
    """
    rows = list(epochs)
    by_epoch = {(row.trial, row.epoch): row for row in rows}
    chains: defaultdict[str, list[Epoch]] = defaultdict(list)
    seconds: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        source = by_epoch.get((row.taken_from, row.epoch), row)
        seconds[row.trial] += source.seconds
        chains[row.trial].append(source if source.at == row.at else row)
    delays = []
    for name, chain in chains.items():
        chain.sort(key=lambda row: row.epoch)
        start = max(0.0, chain[0].begin - submitted)
        gaps = [
            max(0.0, after.at - after.seconds - before.at)
            for before, after in pairwise(chain)
            if before.epoch not in rungs
        ]
        gaps.append(max(0.0, chain[0].at - chain[0].seconds - chain[0].begin))
        is_over = over is None or name in over
        completion = max(0.0, chain[-1].at - submitted) if is_over else None
        delays.append(TrialDelays(start, start + math.fsum(gaps), completion, seconds[name]))
    return delays


def summary(trials: Sequence[TrialDelays]) -> Delays | None:
    """Return means and percentiles over ``trials``, or None if there are no trials."""
    if not trials:
        return None
    finished = [(each.completion, each.trained) for each in trials if each.completion is not None]
    times = sorted(completion for completion, _ in finished)
    completion = None
    if finished:
        slowdowns = [completion / trained for completion, trained in finished if trained > 0.0]
        completion = Completion(
            trials=len(finished),
            mean=fmean(times),
            median=percentile(times, 0.5),
            p95=percentile(times, 0.95),
            slowdown=fmean(slowdowns) if slowdowns else 1.0,
        )
    return Delays(
        trials=len(trials),
        start=fmean(each.start for each in trials),
        waiting=fmean(each.waiting for each in trials),
        completion=completion,
    )


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return the quantile ``part`` (from 0 to 1) of the values in ``ordered``.

    The values must be in ascending order. The result is the smallest of the values for which the
    share of values up to the result is at least ``part``.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return ordered[max(0, math.ceil(part * len(ordered) - 1e-9) - 1)]


def delays_of(
    study: StudyRow, trials: Iterable[TrialRow], epochs: Iterable[EpochRow]
) -> list[TrialDelays]:
    """Return the times of the trials of ``study``, given the rows of its trials and epochs."""
    over = {trial.id for trial in trials if trial.state in FINAL}
    return trial_delays(study.created_at, epochs, frozenset(pauses_of(study.plan)), over)


def delay_words(found: Delays) -> str:
    """Return ``found`` as a line: *trials began after 4.0 s and waited 9.0 s on average; ...*.

    The line also explains completion and slowdown.
    """
    begin, wait = duration(found.start), duration(found.waiting)
    text = f"trials began after {begin} and waited {wait} on average"
    if (times := found.completion) is None:
        return f"{text}; none has ended yet"
    return (
        f"{text}; completion (from the study's submission to a trial's last epoch)"
        f" {duration(times.mean)} on average (p50 {duration(times.median)},"
        f" p95 {duration(times.p95)}); slowdown (completion divided by the trial's own training"
        f" time) {times.slowdown:.2f} on average, 1 if it never waited"
    )


#: The begin and the end of a span of time, in seconds since 1970.
Span = tuple[float, float]


def epoch_spans(rows: Sequence[Epoch], seats: Mapping[str, int]) -> list[list[Span]]:
    """Return the spans of time in which each epoch in ``rows`` was trained.

    An epoch has several spans if trials took turns in the trainer. ``seats`` contains the number of
    slots that share one trainer, by the name of the device.
    """
    spans_of_rows = [[(row.at - row.seconds, row.at)] for row in rows]
    for shared_spans in of_ends("show", "shared_spans"):
        for index, spans in shared_spans(rows, seats).items():
            spans_of_rows[index] = spans
    return spans_of_rows
