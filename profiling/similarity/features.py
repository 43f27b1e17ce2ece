"""Features: profiles as rows of numbers that can be compared, with gaps where nothing was measured.

A feature whose name ends in ``_share`` or ``_ratio`` is a part of a whole and is taken as it is.
(Several cores can give more than one second of CPU time in a second.) Every other feature is taken
as log(1 + x), since rates differ by factors. A value that was not measured is NaN in its row and
takes part in no distance; it is never zero.

Scales come from the differences among windows of one workload. So a feature counts by what it says
about the workload, and not by the size of its numbers. Scales are quantiles, which a few bad
samples do not move (Huber, "Robust Statistics", 1981, chapter 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .history import Profile

Rows = NDArray[np.float64]

#: A rate further than this from all others (a logarithm: a factor of 1000) is no measurement.
MAX_LOG_DISTANCE = math.log(1000.0)
#: The largest possible share: no device has more cores.
MAX_SHARE = 1024.0
#: The finest differences that count: of a logarithm (10 %), and of a share.
FINEST_RATE, FINEST_SHARE = 0.1, 0.01
#: The finest difference of a logarithm for rates of a few per second that depend on the machine as
#: much as on the workload; and the words in the names of such rates.
JUMPING, JUMPING_RATE = ("faults", "switches"), 1.0
#: The most scales that a feature contributes to a distance, so that no single one decides.
CLIP = 5.0
#: The fewest features that compared profiles must share. They must also share half of the smaller
#: profile's.
MIN_SHARED = 4
#: The part of the deviations that a scale covers, and the standard deviations that correspond to
#: it. So a feature that often jumps counts little, and up to a tenth of bad samples do not move a
#: scale.
COVERED, COVERED_DEVIATIONS = 0.9, 1.6449


def is_share(name: str) -> bool:
    """Return True if the feature is a part of a whole."""
    return name.endswith(("_share", "_ratio"))


def impossible(profile: Profile) -> str | None:
    """Return the first feature with a value that no measurement can have; None if there is none.

    NaN is allowed: it says that the feature was not measured.
    """
    for name, value in profile:
        if value < 0 or math.isinf(value) or (is_share(name) and value > MAX_SHARE):
            return name
    return None


def rows_of(profiles: Sequence[Profile], names: Sequence[str]) -> Rows:
    """Return transformed values: a row for each profile, a column for each name; NaN for gaps."""
    column_of = {name: column for column, name in enumerate(names)}
    rows = np.full((len(profiles), len(names)), np.nan)
    for row, profile in zip(rows, profiles, strict=True):
        for name, value in profile:
            if name in column_of:
                row[column_of[name]] = value if is_share(name) else math.log1p(value)
    return rows


def plausible_rows(rows: Rows, groups: Sequence[str]) -> NDArray[np.bool_]:
    """Return a mask of the rows without absurd values. ``groups`` are the rows' workloads.

    A value is absurd if it is more than ``MAX_LOG_DISTANCE`` from the median of its workload's
    other rows. With fewer than two such rows, it is absurd if it is that far from every other row.
    """
    plausible = np.ones(len(rows), dtype=bool)
    if len(rows) < 3:
        return plausible
    labels = np.asarray(groups)
    for index, row in enumerate(rows):
        is_other = np.arange(len(rows)) != index
        same_workload = is_other & (labels == labels[index])
        with np.errstate(all="ignore"):
            if same_workload.sum() >= 2:
                far = np.abs(_median(rows[same_workload]) - row)
            else:
                differences = np.abs(rows[is_other] - row)
                measured = ~np.isnan(differences)
                far = np.where(measured, differences, np.inf).min(axis=0)
                far[~measured.any(axis=0)] = 0.0  # no other row has it to compare with
        plausible[index] = not np.any(far > MAX_LOG_DISTANCE)
    return plausible


@dataclass(frozen=True, slots=True)
class Scales:
    """Scales of the features: standard ``deviations``, in transformed units, by ``names``."""

    names: tuple[str, ...]
    deviations: Rows

    def parts(self, one: Rows, others: Rows) -> Rows:
        """Return squared scaled differences of ``one`` to each of ``others``; NaN for gaps."""
        scaled = np.abs(others - one) / self.deviations
        squared: Rows = np.minimum(scaled, CLIP) ** 2
        return squared

    def distances(self, one: Rows, others: Rows) -> Rows:
        """Return root mean square differences of shared features; infinite if these are too few."""
        parts = self.parts(one, others)
        shared = (~np.isnan(parts)).sum(axis=1)
        smaller = np.minimum((~np.isnan(one)).sum(), (~np.isnan(others)).sum(axis=1))
        enough = (shared >= MIN_SHARED) & (2 * shared >= smaller)
        total = np.nansum(parts, axis=1)
        return np.where(enough, np.sqrt(total / np.maximum(shared, 1)), np.inf)


def scales(rows: Rows, groups: Sequence[str], names: Sequence[str]) -> Scales:
    """Return the scales from spreads within workloads; over all rows if none was measured twice."""
    labels = np.asarray(groups)
    deviations = []
    for group in sorted(set(groups)):
        own = rows[labels == group]
        if len(own) > 1:
            # With few rows, the median is too close to each of them.
            deviations.append((own - _median(own)) * math.sqrt(len(own) / (len(own) - 1)))
    deviations_of_rows = np.concatenate(deviations) if deviations else rows - _median(rows)
    return Scales(tuple(names), robust_deviation(deviations_of_rows, names))


def prior_scales(names: Sequence[str]) -> Scales:
    """Return the scales to use while there are too few windows to measure their spread."""
    return Scales(tuple(names), _finest(names))


def _finest(names: Sequence[str]) -> Rows:
    """Return the finest difference that counts, for each feature."""
    return np.array([_finest_of(name) for name in names])


def _finest_of(name: str) -> float:
    if is_share(name):
        return FINEST_SHARE
    return JUMPING_RATE if any(word in name for word in JUMPING) else FINEST_RATE


def robust_deviation(deviations: Rows, names: Sequence[str]) -> Rows:
    """Return each column's standard deviation, by a quantile; at least the finest difference."""
    size = np.abs(deviations)
    measured = ~np.isnan(size)
    quantiles = np.array(
        [
            np.quantile(column[is_measured], COVERED) / COVERED_DEVIATIONS
            if is_measured.any()
            else 0.0
            for column, is_measured in zip(size.T, measured.T, strict=True)
        ]
    )
    floored: Rows = np.maximum(quantiles, _finest(names))
    return floored


def medians(rows: Rows, groups: Sequence[str]) -> tuple[list[str], Rows]:
    """Return the workloads in order, and the median row of each."""
    labels, workloads = np.asarray(groups), sorted(set(groups))
    return workloads, np.array([_median(rows[labels == group]) for group in workloads])


def _median(rows: Rows) -> Rows:
    """Return the median of each column without its gaps; NaN if a column has only gaps."""
    columns = [
        np.median(column[~np.isnan(column)]) if not np.isnan(column).all() else np.nan
        for column in rows.T
    ]
    return np.array(columns)


def principal(rows: Rows) -> Rows:
    """Return each row's position in the plane of the two largest principal components (n x 2).

    Only features that all rows have are used. Few rows may lie on a line, or in one point
    (Jolliffe, "Principal Component Analysis", 2002).
    """
    complete = rows[:, ~np.isnan(rows).any(axis=0)]
    left_vectors, sizes, _ = np.linalg.svd(complete - complete.mean(axis=0), full_matrices=False)
    positions: Rows = np.zeros((len(rows), 2))
    n = min(2, len(sizes))
    positions[:, :n] = left_vectors[:, :n] * sizes[:n]
    return positions
