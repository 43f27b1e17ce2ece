"""Evidence: the time of configurations divided by the default's, from the history's entries.

Theory of operation. An entry's log ratio y = -log(speed-up) has the variance v of the mean of its
windows. Studies differ by more than that (load, data, hyperparameters), so entries of one workload
are combined by a random-effects model: each study has a true value of its own around the
workload's. The variance between studies is the estimate by the method of moments (DerSimonian and
Laird, "Meta-analysis in clinical trials", Control. Clin. Trials 7, 1986; with any weights a:
DerSimonian and Kacker, Contemp. Clin. Trials 28, 2007, equation 6),

    t^2 = (sum a (y - m)^2 - (sum a v - sum a^2 v / sum a)) / (sum a - sum a^2 / sum a),

and never below ``BETWEEN_STUDIES``^2, since two or three studies give a bad estimate. Each entry
then has the weight 1 / (v + t^2), and the combination the error sqrt(1 / sum of weights). So two
studies with opposite results leave a mean near 0 with a wide error.

The evidence of other workloads is combined in the same way, with ``BETWEEN_WORKLOADS``, and with
more variance for those further away. For *another* workload the result has the error of a
prediction, sqrt(t^2 + 1 / sum of weights) (Higgins, Thompson and Spiegelhalter, "A re-evaluation of
random-effects meta-analysis", J. R. Stat. Soc. A 172, 2009). It stays a prior, however much was
measured for similar workloads.

The scheduler imports this module: nothing here needs more than ``math``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import erf, log, sqrt
from typing import NamedTuple

from ..knobs.knobs import SystemConfig
from .history import HistoryEntry

#: The standard deviation of one window's log ratio before it was measured, and the number of
#: windows that this assumption counts for.
NOISE, NOISE_WINDOWS = 0.1, 3
#: The least standard deviation between studies of one workload.
BETWEEN_STUDIES = 0.05
#: The least standard deviation between similar workloads; and the additional one for each threshold
#: of distance (``Similarity.threshold``) between them.
BETWEEN_WORKLOADS, BY_DISTANCE = 0.15, 0.15
#: Workloads further away than this multiple of the threshold are ignored.
MAX_DISTANCE = 10.0
#: Seconds after which a configuration's failure is forgotten (a week): drivers and memory change.
FORGOTTEN = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Log ratio of a configuration's seconds per step to the default's; negative is faster."""

    config: SystemConfig
    mean: float
    #: The standard error of ``mean``.
    error: float
    windows: int
    #: The number of studies that have measured it.
    studies: int


@dataclass(frozen=True, slots=True)
class Prior:
    """The log ratio expected for an unmeasured workload, from similar workloads' evidence."""

    config: SystemConfig
    mean: float
    #: The standard error of ``mean`` as a prediction for one more workload.
    error: float
    #: The number of workloads with evidence, and the number of those whose mean has the same sign.
    workloads: int
    agreeing: int


class _Point(NamedTuple):
    """A measured log ratio, and its variance."""

    mean: float
    variance: float


class _Combined(NamedTuple):
    """A weighted mean, its variance, and the variance between the points."""

    mean: float
    variance: float
    between: float


def known_of(entries: Iterable[HistoryEntry]) -> tuple[Evidence, ...]:
    """Return the evidence in ``entries`` of one workload on one class of machine.

    Configurations come in order. The default is left out, since ratios are relative to it, and so
    are failures (``failed_of``).
    """
    by_config: defaultdict[SystemConfig, list[HistoryEntry]] = defaultdict(list)
    for entry in entries:
        if entry.config and not entry.infeasible:
            by_config[entry.config].append(entry)
    return tuple(_of_config(config, by_config[config]) for config in sorted(by_config, key=repr))


def failed_of(
    entries: Iterable[HistoryEntry], now: float, seconds: float = FORGOTTEN
) -> tuple[SystemConfig, ...]:
    """Return the configurations that failed less than ``seconds`` ago, in order.

    Earlier failures are forgotten, and so are failures that a wrong clock dated that far into the
    future.
    """
    failed = {e.config for e in entries if e.infeasible and abs(now - e.at) < seconds}
    return tuple(sorted(failed, key=repr))


def prior_of(neighbours: Iterable[tuple[float, Iterable[Evidence]]]) -> tuple[Prior, ...]:
    """Return the priors for a workload from similar ones, ordered by configuration.

    Each neighbour's evidence comes with its distance, as a multiple of the threshold of similarity.
    """
    by_config: defaultdict[SystemConfig, list[_Point]] = defaultdict(list)
    for distance, evidence in neighbours:
        if 0.0 <= distance <= MAX_DISTANCE:
            further = (BY_DISTANCE * distance) ** 2
            for each in evidence:
                by_config[each.config].append(_Point(each.mean, each.error**2 + further))
    priors = []
    for config in sorted(by_config, key=repr):
        points = by_config[config]
        mean, variance, between = _combined(points, BETWEEN_WORKLOADS)
        agreeing = sum((point.mean < 0) == (mean < 0) for point in points)
        priors.append(Prior(config, mean, sqrt(variance + between), len(points), agreeing))
    return tuple(priors)


def sureness(found: Evidence | Prior) -> float:
    """Return the probability that the configuration is faster than the default."""
    return 0.5 * (1.0 - erf(found.mean / found.error / sqrt(2.0)))


def _of_config(config: SystemConfig, entries: Sequence[HistoryEntry]) -> Evidence:
    """Return the evidence in ``entries``, all of one configuration."""
    of_studies: defaultdict[str, list[_Point]] = defaultdict(list)
    for entry in entries:
        of_studies[entry.source].append(_Point(-log(entry.speedup), _variance(entry)))
    points = [_pooled(points) for points in of_studies.values()]
    mean, variance, _ = _combined(points, BETWEEN_STUDIES)
    windows = sum(entry.windows for entry in entries)
    return Evidence(config, mean, sqrt(variance), windows, len(points))


def _variance(entry: HistoryEntry) -> float:
    """Return the variance of an entry's log ratio.

    The measured variance of few windows may be small by chance, so it is drawn towards the assumed
    one.
    """
    squares, degrees = NOISE_WINDOWS * NOISE**2, float(NOISE_WINDOWS)
    if entry.spread is not None:
        squares += (entry.windows - 1) * entry.spread**2
        degrees += entry.windows - 1
    return squares / degrees / entry.windows


def _pooled(points: Sequence[_Point]) -> _Point:
    """Return the mean of one study's entries, weighted by their precision.

    If the entries scatter more than their variances predict, the result's variance is multiplied by
    the ratio of both (Birge, "The calculation of errors by the method of least squares", Phys. Rev.
    40, 1932).
    """
    total = sum(1.0 / point.variance for point in points)
    mean = sum(point.mean / point.variance for point in points) / total
    squares = sum((point.mean - mean) ** 2 / point.variance for point in points)
    return _Point(mean, max(1.0, squares / max(1, len(points) - 1)) / total)


def _combined(points: Sequence[_Point], least: float) -> _Combined:
    """Return the mean of a random-effects model with at least this deviation between points."""
    between = least**2
    if len(points) > 1:
        weights = [1.0 / (point.variance + between) for point in points]
        total = sum(weights)
        pairs = list(zip(weights, points, strict=True))
        mean = sum(a * point.mean for a, point in pairs) / total
        squares = sum(a * (point.mean - mean) ** 2 for a, point in pairs)
        chance = sum(a * (1.0 - a / total) * point.variance for a, point in pairs)
        between = max(between, (squares - chance) / sum(a * (1.0 - a / total) for a in weights))
    weights = [1.0 / (point.variance + between) for point in points]
    total = sum(weights)
    mean = sum(a * point.mean for a, point in zip(weights, points, strict=True)) / total
    return _Combined(mean, 1.0 / total, between)
