"""The similarity service: which workloads are similar to this one, and what paid off there.

Theory of operation. Each window of the history is a row of scaled features (``features``); the
distance of two windows is the root mean square of their differences. A conformal test decides
whether a new window is similar to any known one. For every window whose workload was measured more
than once, the distance to its nearest other window is taken (leave one out). A new window is known
if its own nearest distance is at most the ceil((n + 1)(1 - alpha))-th smallest of these n. A window
of a known workload is then called unknown with a probability of at most alpha, whatever the
distribution, if windows are exchangeable (Vovk, Gammerman and Shafer, "Algorithmic Learning in a
Random World", 2005, chapter 2; Laxhammar and Falkman, 2010, for nearest neighbours). With few
windows that rank does not exist; the largest distance is used then, at the level n / (n + 1), and
the answer says so.

What is transferred is the speed-up relative to the default configuration. It is a mean of
logarithms over similar workloads (those in the nearest one's cluster, and all within the
threshold), weighted by windows and closeness. One window at the default is added, so that a lucky
reading promises little.

Nothing that is fitted is stored: a service is made from the history.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.errors import UsageError
from ..knobs.knobs import SystemConfig, config_text
from .clusters import cluster
from .features import Rows, Scales, impossible, medians, plausible_rows, principal, rows_of, scales
from .history import HistoryEntry, Profile
from .profile import COUNTED

#: A window of a known workload is called unknown with at most this probability.
ALPHA = 0.1
#: The fewest distances for a threshold; with fewer, its level would be under 0.8.
MIN_DISTANCES = 4
#: The most workloads that an answer names.
MAX_NEIGHBOURS = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """A feature that both windows have.

    ``weight`` is its squared scaled difference's share of the distance, from 0 to 1.
    """

    feature: str
    own: float
    theirs: float
    weight: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The nearest window of a workload. ``differences`` are the features that both windows have."""

    workload: str
    distance: float
    cluster: int | None
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Nearest:
    """What the history says of a profile."""

    #: Whether the profile is similar to a known workload.
    known: bool
    #: The reason, in words.
    why: str
    #: The distance to the nearest window; None if there is none to compare with.
    distance: float | None = None
    #: The largest distance at which a window is known; None if there is no threshold.
    threshold: float | None = None
    #: The probability that a window of a known workload is within the threshold.
    level: float | None = None
    #: The cluster of the nearest workload; None if it is in none.
    cluster: int | None = None
    #: The nearest workloads, the nearest first.
    neighbours: tuple[Neighbour, ...] = ()
    #: What to run it with; () is the default, None if it is unknown.
    config: SystemConfig | None = None
    #: Speed under ``config``, relative to the default.
    expected_speedup: float = 1.0


@dataclass(frozen=True, slots=True)
class Similarity:
    """A fitted service."""

    #: The class of machine of the entries; None without entries.
    machine: str | None
    #: The cluster of each workload; None for a workload in none.
    clusters: dict[str, int | None]
    #: How many windows had absurd values and are not learnt from.
    aside: int
    #: Why the service has no answers; empty if it has.
    trouble: str
    #: The largest distance at which a window is known; None if there is none.
    threshold: float | None
    #: The probability that a window of a known workload is within the threshold.
    level: float | None
    #: Entries by workload.
    _entries: dict[str, list[HistoryEntry]]
    #: The workload of each window.
    _workloads: tuple[str, ...]
    #: The profile of each window.
    _profiles: tuple[Profile, ...]
    #: The scales of the features.
    _scales: Scales
    #: The row of each window.
    _rows: Rows

    @classmethod
    def fit(cls, entries: Iterable[HistoryEntry]) -> Similarity:
        """Return the service of a history, in any order.

        Raises ``UsageError`` for entries of several classes of machine.
        """
        history = sorted(entries, key=lambda entry: (entry.at, entry.id))
        machines = sorted({entry.machine for entry in history})
        if len(machines) > 1:
            raise UsageError.refuse("entries", machines, "those of one class of machine")
        # Several configurations may have been measured against one window, which counts once.
        windows = list(dict.fromkeys((e.workload, e.profile) for e in history if e.profile))
        possible = [(workload, profile) for workload, profile in windows if not impossible(profile)]
        names = sorted({name for _, profile in possible for name, _ in profile})
        rows = rows_of([profile for _, profile in possible], names)
        measured = [not name.startswith(COUNTED) for name in names]
        plausible = plausible_rows(rows[:, measured], [workload for workload, _ in possible])
        kept = [window for window, is_fine in zip(possible, plausible, strict=True) if is_fine]
        rows, groups = rows[plausible], [workload for workload, _ in kept]
        by_workload: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
        for entry in history:
            if (entry.workload, entry.profile) in kept:
                by_workload[entry.workload].append(entry)
        found = cls(
            machine=machines[0] if machines else None,
            clusters={},
            aside=len(windows) - len(kept),
            trouble=_trouble(len(windows), len(kept)),
            threshold=None,
            level=None,
            _entries=by_workload,
            _workloads=tuple(groups),
            _profiles=tuple(profile for _, profile in kept),
            _scales=scales(rows, groups, names) if kept else Scales((), np.empty(0)),
            _rows=rows,
        )
        if found.trouble:
            return found
        threshold, level = _calibrate(rows, groups, found._scales)
        found = replace(found, threshold=threshold, level=level)
        workloads, points = medians(rows, groups)
        try:
            labels = cluster(points, names)
        except Exception as error:  # of scikit-learn: tuning goes on without the history
            return replace(found, trouble=f"k-means raised {error!r}")
        return replace(found, clusters=dict(zip(workloads, labels, strict=True)))

    @property
    def windows(self) -> int:
        return len(self._profiles)

    def plane(self) -> dict[str, tuple[float, float]]:
        """Each workload's position in a plane, by the median of its windows, in scales of the
        features.
        """
        workloads, points = medians(self._rows, self._workloads)
        if not workloads:
            return {}
        positions = principal(points / self._scales.deviations)
        return {
            name: (float(x), float(y)) for name, (x, y) in zip(workloads, positions, strict=True)
        }

    def ask(self, profile: Profile) -> Nearest:
        """What is known of workloads similar to the one that ``profile`` describes."""
        if self.trouble:
            return Nearest(False, self.trouble)
        bad = impossible(profile)
        if bad is not None:
            return Nearest(False, f"the profile's {bad} is {dict(profile)[bad]:g}: no such reading")
        [row] = rows_of([profile], self._scales.names)
        distances = self._scales.distances(row, self._rows)
        order = [int(index) for index in np.argsort(distances, kind="stable")]
        order = [index for index in order if math.isfinite(distances[index])]
        if not order:
            return Nearest(False, "no window of the history shares enough features with this one")
        nearest: dict[str, int] = {}
        for index in order:
            nearest.setdefault(self._workloads[index], index)
        distance_of = {workload: float(distances[index]) for workload, index in nearest.items()}
        neighbours = tuple(
            self._neighbour(profile, row, index, distance_of[workload])
            for workload, index in list(nearest.items())[:MAX_NEIGHBOURS]
        )
        first = neighbours[0]
        answer = Nearest(
            False, "", first.distance, self.threshold, self.level, first.cluster, neighbours
        )
        if self.threshold is None:
            return replace(answer, why=self._no_threshold())
        if first.distance > self.threshold:
            why = f"the nearest window is {first.distance:.2g} away, above {self.threshold:.2g}"
            return replace(answer, why=f"{why} (level {self.level:.0%})")
        return self._reuse(answer, distance_of, self.threshold)

    def _no_threshold(self) -> str:
        return (
            f"no threshold: it needs {MIN_DISTANCES} windows of workloads that were measured"
            " more than once"
        )

    def _neighbour(self, profile: Profile, row: Rows, index: int, distance: float) -> Neighbour:
        own, theirs = dict(profile), dict(self._profiles[index])
        [parts] = self._scales.parts(row, self._rows[index : index + 1])
        total = float(np.nansum(parts))
        found = [
            Difference(name, own[name], theirs[name], float(part) / total if total else 0.0)
            for name, part in zip(self._scales.names, parts, strict=True)
            if not math.isnan(part)
        ]
        found.sort(key=lambda difference: -difference.weight)
        workload = self._workloads[index]
        return Neighbour(workload, distance, self.clusters.get(workload), tuple(found))

    def _reuse(self, answer: Nearest, distance_of: dict[str, float], threshold: float) -> Nearest:
        """The answer for a known window: the configuration with the highest expected speed-up."""
        pool = {
            workload: distance
            for workload, distance in distance_of.items()
            if distance <= threshold
            or (answer.cluster is not None and self.clusters.get(workload) == answer.cluster)
        }
        logs: defaultdict[SystemConfig, float] = defaultdict(float)
        weights: defaultdict[SystemConfig, float] = defaultdict(float)
        failed: set[SystemConfig] = set()
        for workload, distance in pool.items():
            closeness = 1.0 / (1.0 + (distance / max(threshold, 1e-9)) ** 2)
            for entry in self._entries[workload]:
                if entry.infeasible:
                    failed.add(entry.config)
                elif entry.config:
                    weights[entry.config] += entry.windows * closeness
                    logs[entry.config] += entry.windows * closeness * math.log(entry.speedup)
        found = {config: math.exp(logs[config] / (weights[config] + 1.0)) for config in weights}
        gains = {config: gain for config, gain in found.items() if config not in failed}
        best = max(gains, key=lambda config: (gains[config], repr(config)), default=())
        similar = f"like {len(pool)} known workload{'s' * (len(pool) != 1)}"
        if gains.get(best, 1.0) <= 1.0:
            infeasible = sorted(
                config_text(config) for config in failed if found.get(config, 1.0) > 1.0
            )
            exception = (
                f" and could be run everywhere: {'; '.join(infeasible)} could not"
                if infeasible
                else ""
            )
            why = f"{similar}, where nothing was faster than the default{exception}"
            return replace(answer, known=True, config=(), why=why)
        why = f"{similar}, where this was {gains[best]:.2f} times as fast as the default"
        return replace(answer, known=True, config=best, expected_speedup=gains[best], why=why)


def _trouble(windows: int, kept: int) -> str:
    if kept > 1:
        return ""
    if windows == 0:
        return "the history is empty"
    return f"the history has {kept} usable window{'s' * (kept != 1)}: nothing to compare it with"


def _calibrate(
    rows: Rows, groups: Sequence[str], scale: Scales
) -> tuple[float | None, float | None]:
    """Threshold and level, from windows whose workload has several."""
    labels, found = np.asarray(groups), []
    for index, row in enumerate(rows):
        if (labels == labels[index]).sum() > 1:
            others = np.arange(len(rows)) != index
            found.append(float(scale.distances(row, rows[others]).min()))
    distances = sorted(distance for distance in found if math.isfinite(distance))
    n = len(distances)
    if n < MIN_DISTANCES:
        return None, None
    rank = math.ceil((n + 1) * (1.0 - ALPHA))
    if rank > n:
        return distances[-1], n / (n + 1)
    return distances[rank - 1], 1.0 - ALPHA
