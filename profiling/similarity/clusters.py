"""Clusters of workloads: k-means with as many clusters as the data shows.

Each workload is represented by the median of its windows. So one more window, sound or not, moves
no cluster, and a workload that was measured a hundred times counts once.

k is the number of clusters with the largest mean silhouette (Rousseeuw, J. Comput. Appl. Math. 20,
1987). Below ``MIN_SILHOUETTE`` there is one cluster (Kaufman and Rousseeuw, "Finding groups in
data", 1990, table 4: no substantial structure).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .features import Rows, robust_deviation

#: The least mean silhouette of several clusters, and the most clusters that are tried.
MIN_SILHOUETTE, MAX_CLUSTERS = 0.25, 8
#: With fewer workloads there is one cluster.
MIN_WORKLOADS = 4
#: The least share of workloads that must have a feature for it to count; and the distance from the
#: median, in scales, beyond which values are cut off.
COMMON, CUT = 0.8, 3.0


def cluster(points: Rows, names: Sequence[str]) -> list[int | None]:
    """Return the cluster of each of ``points`` (one row per workload, NaN where not measured).

    Clusters are numbered in the order of their first members. A workload is in no cluster (None) if
    it lacks a feature that most others have.
    """
    assigned: list[int | None] = [None] * len(points)
    if not len(points):
        return assigned
    common = (~np.isnan(points)).mean(axis=0) >= COMMON
    complete = ~np.isnan(points[:, common]).any(axis=1)
    rows = points[complete][:, common]
    if not common.any() or len(rows) < MIN_WORKLOADS:
        labels = [0] * len(rows)
    else:
        centred = rows - np.median(rows, axis=0)
        common_names = [name for name, is_common in zip(names, common, strict=True) if is_common]
        # Cut off, since one feature of one workload must not make a cluster of its own.
        labels = _labels(np.clip(centred / robust_deviation(centred, common_names), -CUT, CUT))
    order: dict[int, int] = {}
    for index, label in zip(np.flatnonzero(complete), labels, strict=True):
        assigned[index] = order.setdefault(label, len(order))
    return assigned


def _labels(rows: Rows) -> list[int]:
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score
    from threadpoolctl import threadpool_limits

    best, best_score = [0] * len(rows), MIN_SILHOUETTE
    limit = min(MAX_CLUSTERS, len(rows) - 1, len(np.unique(rows, axis=0)))
    for k in range(2, limit + 1):
        # There are some dozen rows: waiting for other threads costs more than it saves.
        with threadpool_limits(1):
            assigned = KMeans(n_clusters=k, random_state=0, n_init=10).fit_predict(rows)
        labels = [int(label) for label in assigned]
        if 1 < len(set(labels)) < len(rows):
            score = float(silhouette_score(rows, labels))
            if score > best_score:
                best, best_score = labels, score
    return best
