"""Clusters of workloads: k-means with as many clusters as the data shows, or another clusterer.

Each workload is represented by the median of its windows. So one more window, sound or not, moves
no cluster, and a workload that was measured a hundred times counts once.

k is the number of clusters with the largest mean silhouette (Rousseeuw, J. Comput. Appl. Math. 20,
1987). Below ``MIN_SILHOUETTE`` there is one cluster (Kaufman and Rousseeuw, "Finding groups in
data", 1990, table 4: no substantial structure).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.errors import UsageError
from .features import Rows, robust_deviation

#: The method without clusters: only nearest neighbours count.
NEIGHBORS = "neighbors"
KMEANS = "KMeans"
#: The least mean silhouette of several clusters, and the most clusters that are tried.
MIN_SILHOUETTE, MAX_CLUSTERS = 0.25, 8
#: With fewer workloads there is one cluster.
MIN_WORKLOADS = 4
#: The least share of workloads that must have a feature for it to take part, and how many scales
#: from the median values are cut off.
COMMON, CUT = 0.8, 3.0


def check_method(method: str) -> None:
    """Raise ``UsageError`` if there is no such clusterer."""
    if method != NEIGHBORS:
        _clusterer(method)


def cluster(points: Rows, names: Sequence[str], method: str) -> list[int | None]:
    """The cluster of each of ``points`` (a row a workload, NaN where not measured).

    Clusters are numbered in the order of their first members. A workload is in no cluster (None) if
    it lacks a feature that most others have, or if the clusterer says so, as DBSCAN does for noise.
    """
    assigned: list[int | None] = [None] * len(points)
    if method == NEIGHBORS or not len(points):
        return assigned
    common = (~np.isnan(points)).mean(axis=0) >= COMMON
    complete = ~np.isnan(points[:, common]).any(axis=1)
    rows = points[complete][:, common]
    if not common.any() or len(rows) < MIN_WORKLOADS:
        found = [0] * len(rows)
    else:
        centred = rows - np.median(rows, axis=0)
        kept = [name for name, is_common in zip(names, common, strict=True) if is_common]
        # Cut off, since one feature of one workload must not make a cluster of its own.
        found = _labels(np.clip(centred / robust_deviation(centred, kept), -CUT, CUT), method)
    order: dict[int, int] = {}
    for index, label in zip(np.flatnonzero(complete), found, strict=True):
        assigned[index] = None if label < 0 else order.setdefault(label, len(order))
    return assigned


def _labels(rows: Rows, method: str) -> list[int]:
    from sklearn.metrics import silhouette_score

    kind = _clusterer(method)
    if "n_clusters" not in inspect.signature(kind).parameters:
        return _fitted(kind(), rows)
    best, best_score = [0] * len(rows), MIN_SILHOUETTE
    limit = min(MAX_CLUSTERS, len(rows) - 1, len(np.unique(rows, axis=0)))
    for k in range(2, limit + 1):
        labels = _fitted(kind(n_clusters=k, **_seed(kind)), rows)
        if 1 < len(set(labels)) < len(rows):
            score = float(silhouette_score(rows, labels))
            if score > best_score:
                best, best_score = labels, score
    return best


def _fitted(clusterer: Any, rows: Rows) -> list[int]:
    from threadpoolctl import threadpool_limits

    # There are some dozen rows: waiting for other threads costs more than it saves.
    with threadpool_limits(1):
        return [int(label) for label in clusterer.fit_predict(rows)]


def _seed(kind: Any) -> dict[str, int]:
    known = inspect.signature(kind).parameters
    return {name: given for name, given in (("random_state", 0), ("n_init", 10)) if name in known}


def _clusterer(method: str) -> Any:
    """scikit-learn's class of this name."""
    from sklearn import cluster as clusterers
    from sklearn.base import ClusterMixin

    kind = getattr(clusterers, method, None) if isinstance(method, str) else None
    if not (isinstance(kind, type) and issubclass(kind, ClusterMixin)):
        raise UsageError.refuse(
            "method", method, f"{NEIGHBORS}, or a clusterer of scikit-learn, as {KMEANS}"
        )
    return kind
