"""The similarity service: workloads similar to this one, and the configurations that paid off.

Theory of operation. Each window of the history is a row of scaled features (``features``); the
distance of two windows is the root mean square of their differences. A conformal test decides
whether a new window is similar to any known one. For every window whose workload was measured more
than once, the distance to its nearest other window is taken (leave one out). A new window is known
if its own nearest distance is at most the ceil((n + 1)(1 - alpha))-th smallest of these n. A window
of a known workload is then called unknown with a probability of at most alpha, whatever the
distribution, if windows are exchangeable (Vovk, Gammerman and Shafer, "Algorithmic Learning in a
Random World", 2005, chapter 2; Laxhammar and Falkman, 2010, for nearest neighbours). With few
windows that rank does not exist; the largest distance is used then, at the level n / (n + 1), and
the answer says so. With fewer still, as when one workload is known, both the scales and the
threshold are fixed ones, which no data of this machine have confirmed, and the answer says that.

The service transfers speed-ups relative to the default configuration from similar workloads: those
within the threshold, and those in the nearest one's cluster where there are several clusters. They
give a prior (``evidence.prior_of``), and the best guess is shrunk from it towards no effect, so
that one lucky neighbour promises little.

No fitted value is stored: a service is made from the history.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ...base.errors import UsageError
from ..knobs.knobs import SystemConfig, config_text
from .clusters import cluster
from .evidence import Prior, failed_of, known_of, prior_of, sureness
from .features import (
    Rows,
    Scales,
    impossible,
    medians,
    plausible_rows,
    principal,
    prior_scales,
    rows_of,
    scales,
)
from .history import HistoryEntry, Profile
from .profile import COUNTED

#: A window of a known workload is called unknown with at most this probability.
ALPHA = 0.1
#: The fewest distances for a threshold; with fewer, its level would be under 0.8.
MIN_DISTANCES = 4
#: The threshold if there are fewer distances, in fixed scales (``prior_scales``). Of real windows,
#: 9 of 10 were this close to another window of their workload, and 1 of 70 to one of another.
PRIOR_THRESHOLD = 2.0
#: The standard deviation of configurations' log ratios among all workloads.
EFFECT = 0.35
#: The words that describe this fixed threshold.
UNCONFIRMED = "a stated threshold, no windows yet to confirm it"
#: The least probabilities that are called near certainty and likelihood.
SURE, LIKELY = 0.95, 0.8
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
    """The history's answer for a profile."""

    #: True if the profile is similar to a known workload.
    known: bool
    #: The reason, in words.
    why: str
    #: The distance to the nearest window; None if there is none to compare with.
    distance: float | None = None
    #: The largest distance at which a window is known; None if nothing was compared.
    threshold: float | None = None
    #: The probability that a window of a known workload is within the threshold; None if there are
    #: too few windows, so that the threshold is a fixed one.
    level: float | None = None
    #: The cluster of the nearest workload; None if it is in none.
    cluster: int | None = None
    #: The nearest workloads, the nearest first.
    neighbours: tuple[Neighbour, ...] = ()
    #: The configuration to run the workload with; () is the default, None if it is unknown.
    config: SystemConfig | None = None
    #: Speed under ``config`` divided by the default's.
    expected_speedup: float = 1.0
    #: The probability that ``config`` is faster than the default; None if it is the default.
    sureness: float | None = None


@dataclass(frozen=True, slots=True)
class Similarity:
    """A service fitted to the history of one class of machine."""

    #: The class of machine of the entries; None without entries.
    machine: str | None
    #: The cluster of each workload; None for a workload in none.
    clusters: dict[str, int | None]
    #: The number of windows with absurd values, which are ignored.
    aside: int
    #: The reason why the service has no answers; empty if it has.
    trouble: str
    #: The largest distance at which a window is known.
    threshold: float
    #: The probability that a window of a known workload is within the threshold; None if there are
    #: too few windows to estimate it.
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
        """Return the service fitted to the ``entries`` of a history, in any order.

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
        fine = [window for window, is_fine in zip(possible, plausible, strict=True) if is_fine]
        rows, groups = rows[plausible], [workload for workload, _ in fine]
        by_workload: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
        for entry in history:
            if (entry.workload, entry.profile) in fine:
                by_workload[entry.workload].append(entry)
        service = cls(
            machine=machines[0] if machines else None,
            clusters={},
            aside=len(windows) - len(fine),
            trouble=_trouble(len(windows), len(fine)),
            threshold=PRIOR_THRESHOLD,
            level=None,
            _entries=by_workload,
            _workloads=tuple(groups),
            _profiles=tuple(profile for _, profile in fine),
            _scales=prior_scales(names) if fine else Scales((), np.empty(0)),
            _rows=rows,
        )
        if service.trouble:
            return service
        service = service._calibrated()
        workloads, points = medians(rows, groups)
        try:
            labels = cluster(points, names)
        except Exception as error:  # of scikit-learn: tuning continues without the history
            return replace(service, trouble=f"k-means raised {error!r}")
        return replace(service, clusters=dict(zip(workloads, labels, strict=True)))

    def _calibrated(self) -> Similarity:
        """Return the service with scales and threshold from its windows, if there are enough."""
        several = self._several()
        if len(several) < MIN_DISTANCES:
            return self
        scale = scales(self._rows, self._workloads, self._scales.names)
        nearest = []
        for index in several:
            is_other = np.arange(len(self._rows)) != index
            nearest.append(float(scale.distances(self._rows[index], self._rows[is_other]).min()))
        distances = sorted(distance for distance in nearest if math.isfinite(distance))
        n = len(distances)
        if n < MIN_DISTANCES:
            return self
        rank = math.ceil((n + 1) * (1.0 - ALPHA))
        level = 1.0 - ALPHA if rank <= n else n / (n + 1)
        return replace(self, _scales=scale, threshold=distances[min(rank, n) - 1], level=level)

    def _several(self) -> list[int]:
        """Return the indices of the windows whose workload has other windows."""
        n = Counter(self._workloads)
        return [index for index, name in enumerate(self._workloads) if n[name] > 1]

    @property
    def windows(self) -> int:
        return len(self._profiles)

    def plane(self) -> dict[str, tuple[float, float]]:
        """Return workloads' positions in a plane: their windows' scaled medians, projected."""
        workloads, points = medians(self._rows, self._workloads)
        if not workloads:
            return {}
        positions = principal(points / self._scales.deviations)
        return {
            name: (float(x), float(y)) for name, (x, y) in zip(workloads, positions, strict=True)
        }

    def ask(self, profile: Profile, now: float | None = None) -> Nearest:
        """Return the workloads of the history that are nearest to the one of ``profile``.

        ``now`` is the time (seconds) by which failures are forgotten, or the newest entry's time if
        it is None.
        """
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
        if first.distance > self.threshold:
            why = f"the nearest window is {first.distance:.2g} away, above {self.threshold:.2g}"
            level = UNCONFIRMED if self.level is None else f"level {self.level:.0%}"
            return replace(answer, why=f"{why} ({level})")
        return self._reuse(answer, distance_of, now)

    def _are_clustered(self, workload: str, cluster: int | None) -> bool:
        """Return True if a workload is in this cluster and there are several clusters.

        A single cluster would say nothing.
        """
        several = len({*self.clusters.values()} - {None}) > 1
        return several and cluster is not None and self.clusters.get(workload) == cluster

    def _neighbour(self, profile: Profile, row: Rows, index: int, distance: float) -> Neighbour:
        own, other = dict(profile), dict(self._profiles[index])
        [parts] = self._scales.parts(row, self._rows[index : index + 1])
        total = float(np.nansum(parts))
        differences = [
            Difference(name, own[name], other[name], float(part) / total if total else 0.0)
            for name, part in zip(self._scales.names, parts, strict=True)
            if not math.isnan(part)
        ]
        differences.sort(key=lambda difference: -difference.weight)
        workload = self._workloads[index]
        return Neighbour(workload, distance, self.clusters.get(workload), tuple(differences))

    def _reuse(self, answer: Nearest, distance_of: dict[str, float], now: float | None) -> Nearest:
        """Answer for a known window: the configuration with the highest expected speed-up."""
        pool = {
            workload: distance
            for workload, distance in distance_of.items()
            if distance <= self.threshold or self._are_clustered(workload, answer.cluster)
        }
        unit = max(self.threshold, 1e-9)
        priors = prior_of(
            (distance / unit, known_of(self._entries[workload]))
            for workload, distance in pool.items()
        )
        if now is None:
            now = max(entry.at for entries in self._entries.values() for entry in entries)
        failed = failed_of((e for workload in pool for e in self._entries[workload]), now)
        faster = [prior for prior in priors if prior.mean < 0]
        able = [prior for prior in faster if prior.config not in failed]
        best = max(able, key=lambda prior: (_speedup(prior), repr(prior.config)), default=None)
        similar = f"like {len(pool)} known workload{'s' * (len(pool) != 1)}"
        if self.level is None:
            similar += f" ({UNCONFIRMED})"
        if best is None:
            unable = sorted(config_text(p.config) for p in faster if p.config in failed)
            exception = (
                f" and could be run everywhere: {'; '.join(unable)} could not" if unable else ""
            )
            why = f"{similar}, where nothing was faster than the default{exception}"
            return replace(answer, known=True, config=(), why=why)
        sure = sureness(best)
        words = "almost surely" if sure >= SURE else "probably" if sure >= LIKELY else "perhaps"
        why = (
            f"{similar}, where this was {math.exp(-best.mean):.2f} times as fast as the default"
            f" ({best.agreeing} of {best.workloads} agree): {words} faster here too ({sure:.0%})"
        )
        return replace(
            answer,
            known=True,
            config=best.config,
            expected_speedup=_speedup(best),
            sureness=sure,
            why=why,
        )


def _speedup(prior: Prior) -> float:
    """Return the expected speed-up, shrunk towards no effect; the less is known, the more."""
    return math.exp(-prior.mean * EFFECT**2 / (EFFECT**2 + prior.error**2))


def _trouble(windows: int, kept: int) -> str:
    if kept:
        return ""
    return (
        "the history has no usable window" if windows else "there is no window to compare it with"
    )
