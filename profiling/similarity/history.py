"""The history: measured gains of system parameters, with a profile of each workload.

An entry says how fast a workload was under one configuration, relative to the default one, on one
class of machine. It holds rates, ratios and digests, and nothing of the user's code, data, model,
names or hyperparameters. So one history can serve every study (PipeTune, Middleware 2020, section
5.4). Speed-ups are ratios because times of one workload say nothing about another.

One tenant must not push out the entries of others: ``trimmed`` limits the entries of a workload, a
study and a machine.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...base.errors import UsageError
from ..devices.device import Device
from ..knobs.knobs import KNOBS, SystemConfig, possible

Profile = tuple[tuple[str, float], ...]

#: The most entries kept of one workload, of one study, and of one class of machine.
MAX_PER_WORKLOAD, MAX_PER_SOURCE, MAX_PER_MACHINE = 32, 256, 2048
#: The most features, and knobs, of one entry, and the most letters of a name or digest.
MAX_FEATURES, MAX_LETTERS = 128, 200
#: The most windows of one entry, and the latest time (seconds): what every ledger can keep.
MAX_WINDOWS, LATEST = 10**9, 1e12
#: A speed-up or a ratio of energies outside 1 / ``MAX_RATIO`` to ``MAX_RATIO`` is no measurement.
MAX_RATIO = 1000.0
#: The largest possible standard deviation of logarithms of such ratios: that of both extremes.
MAX_DEVIATION = math.sqrt(2.0) * math.log(MAX_RATIO)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One measured configuration of one workload."""

    #: A digest of code and batch bucket (``digest``).
    workload: str
    #: The ``machine_class`` of the device.
    machine: str
    #: A digest of the study that measured (``digest``).
    source: str
    #: Rates and ratios of a window under the default configuration; what was not measured is
    #: absent.
    profile: Profile
    #: The knobs that differ from the default; () is the default itself.
    config: SystemConfig
    #: Trials per hour divided by those with the default.
    speedup: float
    #: Energy per trial divided by that with the default; None if not measured.
    joules: float | None
    #: The number of windows from which ``speedup`` and ``joules`` come.
    windows: int
    #: The time of the measurement (seconds).
    at: float
    #: True if trials failed, or ran out of memory, under this configuration.
    infeasible: bool = False
    #: The standard deviation of one window's log ratio of seconds per step to the default's; None
    #: if not known, as for one window, and in entries of version 0.2.
    spread: float | None = None

    def __post_init__(self) -> None:
        # Sorted by name, with numbers as they are read back: equal entries are equal values.
        profile = sorted((name, float(value)) for name, value in self.profile)
        object.__setattr__(self, "profile", tuple(profile))
        object.__setattr__(self, "config", tuple(sorted(self.config, key=lambda pair: pair[0])))
        object.__setattr__(self, "speedup", float(self.speedup))
        object.__setattr__(self, "at", float(self.at))
        if self.spread is not None:
            object.__setattr__(self, "spread", float(self.spread) + 0.0)  # no negative zero

    @property
    def id(self) -> str:
        """A digest of all the entry's fields, so that equal entries are kept once.

        An unknown spread is left out, so that ids of version 0.2 stay the same.
        """
        facts = (self.workload, self.machine, self.source, self.profile, self.config)
        numbers = (self.speedup, self.joules, self.windows, self.at, self.infeasible)
        deviation = () if self.spread is None else (self.spread,)
        return digest(json.dumps((*facts, *numbers, *deviation)))


def source_of(study: str) -> str:
    """Return the ``source`` of entries that the study with this id measured."""
    return digest("study", study)


def digest(*parts: str) -> str:
    """Return an opaque name for ``parts``: 32 hexadecimal digits of their SHA-256."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def machine_class(device: Device) -> str:
    """Name the class of devices that share speed-ups: ``cuda NVIDIA A100 8 cores``."""
    return f"{device.kind} {device.model or 'unknown'} {len(device.cores)} cores"


def check(entry: HistoryEntry) -> None:
    """Check that ``entry`` can be kept and learnt from. Raises ``UsageError`` naming the field."""
    for field, name in (
        ("workload", entry.workload),
        ("machine", entry.machine),
        ("source", entry.source),
        *(("profile", name) for name, _ in entry.profile),
        *(("config", name) for name, _ in entry.config),
    ):
        if not (0 < len(name) <= MAX_LETTERS and name.isprintable()):
            raise UsageError.refuse(field, name, f"1 to {MAX_LETTERS} printable characters")
    for field, pairs in (("profile", entry.profile), ("config", entry.config)):
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names) or len(names) > MAX_FEATURES:
            raise UsageError.refuse(field, names, f"at most {MAX_FEATURES} names, each once")
    for name, value in entry.profile:
        if not (math.isfinite(value) and value >= 0):
            raise UsageError.refuse(f"profile.{name}", value, "a finite number of at least 0")
    for field, number, low, high in (
        ("speedup", entry.speedup, 1 / MAX_RATIO, MAX_RATIO),
        ("joules", entry.joules, 1 / MAX_RATIO, MAX_RATIO),
        ("spread", entry.spread, 0.0, MAX_DEVIATION),
    ):
        if number is not None and not low <= number <= high:
            raise UsageError.refuse(field, number, f"a number from {low:g} to {high:.4g}")
    for name, setting in entry.config:
        if not possible(name, setting):
            raise UsageError.refuse(f"config.{name}", setting, f"a value of {', '.join(KNOBS)}")
    if not 1 <= entry.windows <= MAX_WINDOWS:
        raise UsageError.refuse("windows", entry.windows, f"1 to {MAX_WINDOWS}")
    if not 0 <= entry.at <= LATEST:
        raise UsageError.refuse("at", entry.at, f"a time from 0 to {LATEST:g} seconds")


def trimmed(entries: Iterable[HistoryEntry]) -> tuple[HistoryEntry, ...]:
    """Return the ``entries`` to keep, oldest first, limited by workload, study and machine.

    Half of each share goes to the fastest entries, the rest to the newest. If a machine has too
    many entries, the studies with the most give up theirs first.
    """
    remaining: list[HistoryEntry] = []
    by_machine = _grouped(sorted(entries, key=_age), lambda entry: entry.machine)
    for of_machine in by_machine:
        of_workloads = [
            entry
            for group in _grouped(of_machine, lambda entry: entry.workload)
            for entry in _best_and_newest(group, MAX_PER_WORKLOAD)
        ]
        by_source = _grouped(of_workloads, lambda entry: entry.source)
        share = _even_share([len(group) for group in by_source])
        remaining += [entry for group in by_source for entry in _best_and_newest(group, share)]
    return tuple(sorted(remaining, key=_age))


def _age(entry: HistoryEntry) -> tuple[float, str]:
    return entry.at, entry.id


def _grouped(
    entries: Iterable[HistoryEntry], key: Callable[[HistoryEntry], str]
) -> list[list[HistoryEntry]]:
    groups: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
    for entry in entries:
        groups[key(entry)].append(entry)
    return list(groups.values())


def _best_and_newest(entries: list[HistoryEntry], limit: int) -> list[HistoryEntry]:
    """Return at most ``limit`` of ``entries``, which are in the order of their age."""
    if len(entries) <= limit:
        return entries
    feasible = [entry for entry in entries if not entry.infeasible]
    best = sorted(feasible, key=lambda entry: -entry.speedup)[: limit // 2]
    ids = {entry.id for entry in best}
    newest = [entry for entry in entries if entry.id not in ids]
    return [*best, *newest[len(newest) - (limit - len(best)) :]]


def _even_share(sizes: Sequence[int]) -> int:
    """Return the most entries that each study may keep, so that all fit the machine's limit.

    ``sizes`` are the studies' numbers of entries.
    """
    remaining, share = MAX_PER_MACHINE, MAX_PER_SOURCE
    for position, size in enumerate(sorted(sizes)):
        fair = remaining // (len(sizes) - position)
        if size > fair:
            return min(share, max(fair, 1))
        remaining -= size
    return share
