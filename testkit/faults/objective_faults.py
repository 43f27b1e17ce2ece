"""Studies of objectives under fault: each value must be that of its trial's own parameters.

Studies with samplers of several kinds run one after another. A value, and each value on the way to
it, follows from a trial's parameters and the step alone, so all of them are computed again from the
parameters in the ledger. Faults are those of ``faults`` and losses of the broker's keys: again and
again for some seconds, all at once, or by eviction.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import optuna
from optuna import samplers
from penstock import create_study
from penstock.app.broker import protocol
from penstock.app.ledger.rows import TrialRow
from penstock.app.server.optuna_bridge.updates import LedgerUpdates, merged

from .faults import KINDS, Faults, Hit, Kind
from .objective_code import (
    CHOICES,
    MIDDLE,
    STEPS,
    paced,
    reporting,
    returning,
    value_at,
    values_of,
)
from .sampler_objective import Wanderer
from .sites import Site

TRIALS = 16
#: Seconds for which keys are lost, and between two losses.
LASTS, BETWEEN = (2.0, 5.0), (0.2, 1.2)
#: Bytes that a broker which evicts has in addition to what it holds.
ROOM = 50_000
GRID = {"x": [-3.5, -1.25, 0.5, 2.75], "kind": list(CHOICES), "n": [2, 7]}
ENQUEUED = {"x": 0.5, "kind": "c", "n": 7}

#: The samplers of the studies, in the order in which they run.
SAMPLERS: dict[str, Callable[[], Any]] = {
    "tpe": lambda: samplers.TPESampler(seed=1, n_startup_trials=4, multivariate=True),
    "random": lambda: samplers.RandomSampler(seed=1),
    "cmaes": lambda: samplers.CmaEsSampler(
        seed=1, n_startup_trials=3, warn_independent_sampling=False
    ),
    "two values": lambda: samplers.NSGAIISampler(seed=1, population_size=4),
    "own": lambda: Wanderer(1),
    "grid": lambda: samplers.GridSampler(GRID, seed=1),
    "gp": lambda: samplers.GPSampler(seed=1, n_startup_trials=4),
}


class ObjectiveSite(Site):
    """An installation that runs objectives, a study with each kind of sampler in turn."""

    def start(self, undo: ExitStack) -> None:
        before = dict(os.environ)

        def restore() -> None:
            os.environ.clear()
            os.environ.update(before)

        undo.callback(restore)
        os.environ.update(self.settings.environment())

    def submit(self, seed: int) -> None:
        kind = list(SAMPLERS)[seed % len(SAMPLERS)]
        two = kind == "two values"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna's, of samplers that may change
            study = create_study(
                study_name=f"{kind} {len(self.studies)}",
                sampler=SAMPLERS[kind](),
                directions=["minimize", "maximize"] if two else ["minimize"],
                pruner=optuna.pruners.PercentilePruner(75.0, n_startup_trials=4),
            )
        study.enqueue_trial(ENQUEUED)
        one = paced if self.paced else reporting
        study.submit(returning if two else one, TRIALS)
        self.studies.append(study.id)

    def last_row(self) -> int:
        """Return how many epochs and ends of trials there are: where trials have two values, only
        their ends are seen.
        """
        rows = [row for study in self.studies for row in self.reader.trials(study)]
        return len(self.epochs()) + sum(row.finished_at is not None for row in rows)


class ObjectiveFaults(Faults):
    """Carries out faults on studies of objectives."""

    def kinds(self) -> dict[str, Kind]:
        return OBJECTIVE_KINDS

    def _lose_history(self, kind: str) -> Hit | None:
        return self._lose(kind, protocol.HISTORY)

    def _lose_attempts(self, kind: str) -> Hit | None:
        return self._lose(kind, protocol.attempt_key(""))

    def _lose_leases(self, kind: str) -> Hit | None:
        return self._lose(kind, f"{protocol.PREFIX}lease:")

    def _lose_all_three(self, kind: str) -> Hit | None:
        starts = (protocol.HISTORY, protocol.attempt_key(""), f"{protocol.PREFIX}lease:")
        return self._lose(kind, *starts)

    def _lose(self, kind: str, *starts: str) -> Hit | None:
        """Delete keys that begin so, again and again."""
        return self._repeat(kind, lambda: self._delete(starts))

    def _delete(self, starts: tuple[str, ...]) -> None:
        keys = [key for start in starts for key in self._client.keys(f"{start}*")]
        if keys:
            self._client.delete(*keys)

    def _flush(self, kind: str) -> Hit | None:
        return self._repeat(kind, self._client.flushall)

    def _repeat(self, kind: str, lose: Callable[[], object]) -> Hit | None:
        if not self._at_work():
            return None
        at = time.time()
        until = time.monotonic() + self._rng.uniform(*LASTS)
        while time.monotonic() < until:
            lose()
            time.sleep(self._rng.uniform(*BETWEEN))
        return Hit(at, kind, anew=True)

    def _evict(self, kind: str) -> Hit | None:
        """Have the broker evict whatever it likes, for some seconds."""
        if not self._at_work():
            return None
        at = time.time()
        with self._evicting():
            time.sleep(self._rng.uniform(*LASTS))
        return Hit(at, kind, anew=True)

    @contextmanager
    def _evicting(self) -> Iterator[None]:
        used = self._client.info("memory")["used_memory"]
        try:
            self._client.config_set("maxmemory-policy", "allkeys-random")
            self._client.config_set("maxmemory", used + ROOM)
            yield
        finally:
            self._client.config_set("maxmemory", 0)
            self._client.config_set("maxmemory-policy", "noeviction")


OBJECTIVE_KINDS: dict[str, Kind] = {
    **{name: KINDS[name] for name in ("trainer", "worker", "scheduler", "broker", "broker wiped")},
    "history lost": ObjectiveFaults._lose_history,
    "attempts lost": ObjectiveFaults._lose_attempts,
    "leases lost": ObjectiveFaults._lose_leases,
    "keys lost": ObjectiveFaults._lose_all_three,
    "flushed": ObjectiveFaults._flush,
    "evicting": ObjectiveFaults._evict,
}


def verdict(at: Site, study: str) -> dict[str, list[str]]:
    """Return in words what is ``lost``, ``doubled`` and ``wrong`` in a study that is over."""
    found: dict[str, list[str]] = {"lost": [], "doubled": [], "wrong": []}
    rows = at.reader.trials(study)
    written = merged(LedgerUpdates(at.reader, study).read_written())
    numbers = Counter(row.number for row in rows)
    found["lost"] += [f"trial {n}" for n in range(TRIALS) if n not in numbers]
    found["doubled"] += [f"trial {n}" for n in numbers if numbers[n] > 1 or n >= TRIALS]
    epochs = at.reader.epochs(study)
    fences = dict.fromkeys((row.id for row in rows), 0)
    seen = set()
    for epoch in epochs:
        place = (epoch.trial, epoch.epoch)
        if place in seen or epoch.fence < fences[epoch.trial]:
            found["doubled"].append(f"epoch {place}")
        seen.add(place)
        fences[epoch.trial] = epoch.fence
    for row in rows:
        reports = {int(e.metrics["step"]): e.value for e in epochs if e.trial == row.id}
        pairs = written.get(row.number, {}).get("user_attrs", ())
        attributes = {key: json.loads(text) for key, text in pairs}
        found["wrong"] += _wrong(row, reports, attributes)
        found["lost"] += _lost(row, reports, attributes)
    return found


def _wrong(
    row: TrialRow, reports: Mapping[int, float], attributes: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what differs in a trial from the values that its parameters give."""
    params, name = dict(row.params), f"trial {row.number}"
    if row.number == 0 and not params.items() >= ENQUEUED.items():
        yield f"{name}: {params}, where {ENQUEUED} were enqueued"
    for step, value in reports.items():
        drawn = "x" in params and "kind" in params and (step < MIDDLE or "n" in params)
        if not drawn or value != value_at(params, step):
            yield f"{name}: {value} at step {step} of {params}"
    if attributes.get("params", params) != params:
        yield f"{name}: its attribute has {attributes['params']}, it has {params}"
    if row.state == "completed":
        two = len(row.values) > 1
        expected = values_of(params) if two else (value_at(params, STEPS),)
        if tuple(row.values) != expected:
            yield f"{name}: {row.values} of {params}"
    elif row.state == "stopped" and row.value != reports[max(reports)]:
        yield f"{name}: pruned with {row.value}, its last report was {reports[max(reports)]}"


def _lost(
    row: TrialRow, reports: Mapping[int, float], attributes: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what is missing of a trial."""
    name = f"trial {row.number}"
    if row.state not in ("completed", "stopped"):
        yield f"{name} is {row.state}: {row.failure_message}"
        return
    reported = range(STEPS) if row.state == "completed" else range(max(reports, default=-1) + 1)
    if len(row.values) == 1 or row.state == "stopped":
        yield from (f"{name}: step {step}" for step in reported if step not in reports)
    if row.state == "completed" and "params" not in attributes:
        yield f"{name}: its attribute"
