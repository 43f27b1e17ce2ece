"""Reads a workload from a YAML file in the format that docs/simulate.md describes.

A file has no code, only numbers. A study in the file has trials with their seconds, or a tuner with
a model of the values that trials reach. Errors name the line, the key and the allowed values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from random import Random
from typing import Any

from ...app.client.study.study_file import strategy_from
from ...app.common.yaml_file import KeyPath, YamlFile
from ...base.errors import UsageError
from ...profiling.costs.group_slowdown import GroupSlowdown
from ...profiling.costs.reference_curves import curve
from ...profiling.costs.throughput import Shape
from ...scheduler.model.study import StrategySpec
from .devices.device_memory import GIB, MAX_MEMORY, UNKNOWN, MemoryNeed
from .devices.transport import OVERHEAD
from .workload import PIECES, StudyWork, TrialWork, Workload, shape_of, study_spec, widest

_FILE = ("studies", "curves", "resize", "overhead", "kind", "seed", "sharing")
_STUDY = (
    *("arrives", "max_width", "trials", "tuner", "n_trials", "seconds", "spread", "curve"),
    *("memory", "pieces", "together"),
)
_TRIAL = ("epochs", "seconds", "curve", "count", "memory")
_MEMORY = ("persistent", "ephemeral")
_LEARNING = ("start", "best", "rate")
_FAMILY = ("application", "cluster", "batch")
_AMDAHL = ("serial", "cost", "widest")
_KINDS = ("cpu", "cuda")
#: The most trials, epochs or devices. A larger number is most likely a typing error.
MAX_COUNT = 100_000
#: The most epochs that all trials of a tuner may have in total, since each epoch has its own value.
MAX_VALUES = 5_000_000
#: Seconds: the longest time, and the shortest time where zero is not allowed.
MAX_SECONDS, MIN_SECONDS = 1e6, 1e-6
#: The largest standard deviation of the logarithm of a trial's time. Two such deviations are a
#: factor of 400.
MAX_DEVIATION = 3.0
#: The default for the largest width of a curve that a formula gives.
DEFAULT_WIDEST = 16


def read_workload(file: Path) -> Workload:
    """Return the workload in ``file``.

    Raises:
        UsageError: the file cannot be read, or something in the file is missing or impossible. The
            message names file, line and key.
    """
    return _Reading(YamlFile(file), file.name).workload()


class _Reading:
    """A reader of one file, which also holds the speed curves that the file defines by name."""

    def __init__(self, document: YamlFile, name: str) -> None:
        self._document = document
        self._name = name
        self._curves: dict[str, tuple[float | None, Shape]] = {}

    def workload(self) -> Workload:
        empty = self._document.values is None
        fields = {} if empty else self._document.mapping((), "the workload")
        self._document.check_keys((), fields, _FILE, "the workload")
        for name, value in self._mapping(("curves",), fields.get("curves", {})).items():
            self._curves[name] = self._curve(("curves", name), value)
        kind = fields.get("kind", "")
        if kind and kind not in _KINDS:
            raise self._refused(("kind",), kind, " or ".join(_KINDS))
        seed = self._whole((), fields, "seed", low=0, default=0)
        allowed = "a mapping of names to studies, at least one"
        if "studies" not in fields:
            raise self._document.error((), f"studies is missing: allowed is {allowed}")
        studies = fields["studies"]
        if not isinstance(studies, dict) or not studies:
            raise self._refused(("studies",), studies, allowed)
        return Workload(
            self._name,
            tuple(
                self._study(("studies", name), value, number, seed)
                for number, (name, value) in enumerate(studies.items())
            ),
            resize=self._number((), fields, "resize", default=0.0),
            overhead=self._number((), fields, "overhead", default=OVERHEAD),
            kind=kind,
            sharing=self._sharing(fields.get("sharing", [])),
        )

    def _sharing(self, value: Any) -> tuple[float, ...]:
        fits = isinstance(value, list) and all(map(_is_number, value))
        if not fits or [1, *value] != sorted([1, *value]):
            allowed = "how many times as long an epoch takes of 2, 3, ... trials, as [1.3, 2.1]"
            raise self._refused(("sharing",), value, allowed)
        return tuple(map(float, value))

    def _study(self, key_path: KeyPath, value: Any, number: int, seed: int) -> StudyWork:
        mapping = self._mapping(key_path, value)
        self._document.check_keys(key_path, mapping, (*_STUDY, "learning"), str(key_path[-1]))
        if ("trials" in mapping) == ("tuner" in mapping):
            raise self._document.error(key_path, f"{key_path[-1]} has either trials or a tuner")
        plan: StrategySpec | None = None
        if "tuner" in mapping:
            plan = strategy_from(self._document, (*key_path, "tuner"), mapping["tuner"])
            if plan.max_epochs is None:
                raise self._refused((*key_path, "tuner"), plan.name, "a strategy with max_epochs")
            rng = Random(f"penstock {seed} {number}")  # noqa: S311 - a workload is no secret
            trials = self._tuned(key_path, mapping, plan, rng)
        else:
            self._document.check_keys(
                key_path,
                mapping,
                ("arrives", "max_width", "trials", "together"),
                f"{key_path[-1]} with trials",
            )
            trials = self._trials((*key_path, "trials"), mapping["trials"])
        width = self._whole(key_path, mapping, "max_width", low=1, default=widest(trials))
        pieces = self._pieces((*key_path, "pieces"), mapping.get("pieces", {}))
        if pieces and plan is not None and max(pieces) >= (plan.max_epochs or 0):
            allowed = f"pieces that begin before epoch {plan.max_epochs}, the last one"
            raise self._refused((*key_path, "pieces"), mapping["pieces"], allowed)
        if pieces and len(trials) > prod(map(len, pieces.values())):
            raise self._refused(
                (*key_path, "n_trials"), len(trials), "at most one trial for each schedule"
            )
        group_slowdown = self._group_slowdown((*key_path, "together"), mapping.get("together", []))
        if group_slowdown.ratios and plan is not None and plan.name == "pbt":
            allowed = "any tuner but PBT, whose trials go on from each other's states"
            raise self._refused((*key_path, "together"), mapping["together"], allowed)
        spec = study_spec(
            str(key_path[-1]),
            len(trials),
            width,
            strategy=plan,
            number=number,
            pieces=pieces,
            fuses=bool(group_slowdown.ratios),
        )
        if pieces:
            names = [PIECES if epoch == 0 else f"{PIECES}@{epoch}" for epoch in pieces]
            points = product(*pieces.values())
            trials = tuple(
                replace(trial, params=tuple(zip(names, point, strict=True)))
                for trial, point in zip(trials, points, strict=False)
            )
        arrives = self._number(key_path, mapping, "arrives", default=0.0)
        return StudyWork(spec, trials, arrives, budgets=plan is None, group_slowdown=group_slowdown)

    def _pieces(self, key_path: KeyPath, value: Any) -> dict[int, range]:
        """Return the number of values of a step function in each piece, as ranges.

        A piece is a run of epochs in which the function has one value. The keys of the result are
        the epochs after which the pieces begin, from 0 on.
        """
        allowed = "epochs and how many values there are from then on, as {0: 3, 9: 3}, from 0 on"
        counts = self._document.mapping(key_path, "pieces", value, numbers=True)
        fits = all(
            epoch.isdecimal() and type(n) is int and 0 < n <= MAX_COUNT
            for epoch, n in counts.items()
        )
        pieces = {int(epoch): range(n) for epoch, n in counts.items()} if fits else {}
        if not fits or list(pieces) != sorted({0, *pieces} if pieces else ()):
            raise self._refused(key_path, value, allowed)
        return pieces

    def _group_slowdown(self, key_path: KeyPath, value: Any) -> GroupSlowdown:
        """Return the slowdown of fused groups that the file states as pairs of numbers.

        The first number of a pair is a number of trials. The second number is the seconds of an
        epoch per trial in a group of that many trials, divided by the seconds of the epoch alone.
        """
        allowed = (
            "pairs of a rising number of trials together and the part of its time alone that each"
            " takes, as [[4, 0.54], [32, 0.15]]"
        )
        group_slowdown = GroupSlowdown()
        for at, pair in enumerate(value if isinstance(value, list) else [value]):
            fits = isinstance(pair, list) and len(pair) == 2
            fits = fits and type(pair[0]) is int and _is_number(pair[1])
            least = max(group_slowdown.ratios, default=1)
            if not fits or not least < pair[0] <= MAX_COUNT or not 1 / pair[0] <= pair[1] <= 1:
                raise self._refused((*key_path, at), pair, allowed)
            group_slowdown.observe(pair[0], float(pair[1]))
        return group_slowdown

    def _trials(self, key_path: KeyPath, value: Any) -> tuple[TrialWork, ...]:
        works: list[TrialWork] = []
        for at, each in enumerate(self._list(key_path, value, "at least one trial")):
            item_path = (*key_path, at)
            item = self._mapping(item_path, each)
            self._document.check_keys(item_path, item, _TRIAL, "a trial")
            epochs = self._whole(item_path, item, "epochs", low=1)
            level, shape = self._timed(item_path, item)
            copies = self._whole(item_path, item, "count", low=1, default=1)
            memory = self._memory(item_path, item)
            works += [TrialWork(level, shape, epochs, memory=memory)] * copies
        return tuple(works)

    def _tuned(
        self, key_path: KeyPath, mapping: dict[str, Any], plan: StrategySpec, rng: Random
    ) -> tuple[TrialWork, ...]:
        """Return the trials of a tuner, with random durations and random learning curves.

        Durations are lognormal around ``seconds``. The value after epoch e is ``best + (start -
        best) e ** -rate``, with ``best`` and ``rate`` drawn uniformly for each trial (the form pow3
        of Domhan et al., IJCAI 2015).
        """
        count = self._whole(key_path, mapping, "n_trials", low=1)
        assert plan.max_epochs is not None  # refused above
        if count * plan.max_epochs > MAX_VALUES:
            allowed = f"n_trials times max_epochs of at most {MAX_VALUES}"
            raise self._refused((*key_path, "n_trials"), count, allowed)
        level, shape = self._timed(key_path, mapping)
        memory = self._memory(key_path, mapping)
        deviation = self._number(key_path, mapping, "spread", default=0.0, high=MAX_DEVIATION)
        inner = (*key_path, "learning")
        learning = self._mapping(inner, mapping.get("learning", {}))
        self._document.check_keys(inner, learning, _LEARNING, "learning")
        start = self._number(inner, learning, "start", default=1.0)
        best = self._range(inner, learning, "best", (0.05, 0.5))
        rate = self._range(inner, learning, "rate", (0.3, 1.5))
        works = []
        for _ in range(count):
            own = level * math.exp(rng.gauss(0.0, deviation))
            end, power = rng.uniform(*best), rng.uniform(*rate)
            epochs = range(1, plan.max_epochs + 1)
            values = tuple(end + (start - end) * epoch**-power for epoch in epochs)
            works.append(TrialWork(own, shape, values=values, memory=memory))
        return tuple(works)

    def _memory(self, key_path: KeyPath, mapping: dict[str, Any]) -> MemoryNeed:
        """Return a trial's memory need, which the file states in GiB.

        Return ``UNKNOWN`` if the file states no need.
        """
        if "memory" not in mapping:
            return UNKNOWN
        inner = (*key_path, "memory")
        stated = self._mapping(inner, mapping["memory"])
        self._document.check_keys(inner, stated, _MEMORY, "memory")
        persistent, ephemeral = (
            self._number(inner, stated, name, high=MAX_MEMORY) for name in _MEMORY
        )
        return MemoryNeed(round(persistent * GIB), round(ephemeral * GIB))

    def _timed(self, key_path: KeyPath, mapping: dict[str, Any]) -> tuple[float, Shape]:
        """Return an epoch's seconds on one device, and its shape by width.

        The file states a curve, the seconds, or both. If both are given, the seconds replace the
        seconds of the curve.
        """
        level: float | None = None
        shape: Shape = ((1, 1.0),)
        if "curve" in mapping:
            value, at = mapping["curve"], (*key_path, "curve")
            if isinstance(value, str):
                if value not in self._curves:
                    names = ", ".join(self._curves) or "none: curves is missing"
                    raise self._refused(at, value, f"a name in curves ({names})")
                level, shape = self._curves[value]
            else:
                level, shape = self._curve(at, value)
        if "seconds" in mapping:
            level = self._number(key_path, mapping, "seconds", positive=True)
        if level is None:
            raise self._document.error(
                key_path, "seconds is missing: of an epoch on one device, or a curve that has them"
            )
        return level, shape

    def _curve(self, key_path: KeyPath, value: Any) -> tuple[float | None, Shape]:
        """Return an epoch's seconds on one device, and the shape of the curve.

        The seconds are None if the curve is a formula, which states only ratios.
        """
        if isinstance(value, list):
            return shape_of(self._points(key_path, value))
        mapping = self._mapping(key_path, value)
        if "application" in mapping:
            self._document.check_keys(key_path, mapping, _FAMILY, "a curve of a family")
            try:
                batch = self._number(key_path, mapping, "batch", positive=True)
                points = curve(mapping["application"], mapping.get("cluster", ""), batch, 10**6)
            except UsageError as error:
                if not error.field:
                    raise
                raise self._document.error(key_path, str(error)) from error
            if not points:
                raise self._refused((*key_path, "batch"), batch, "at least one example")
            return shape_of(points)
        self._document.check_keys(key_path, mapping, _AMDAHL, "a curve")
        serial = self._number(key_path, mapping, "serial", high=1.0)
        cost = self._number(key_path, mapping, "cost", default=0.0)
        last = self._whole(key_path, mapping, "widest", low=1, default=DEFAULT_WIDEST)
        return None, tuple(
            (width, serial + (1 - serial) / width + cost * (width - 1))
            for width in range(1, last + 1)
        )

    def _points(self, key_path: KeyPath, value: list[Any]) -> list[tuple[int, float]]:
        allowed = (
            "pairs of a width and seconds, as [[1, 60], [2, 34]]; the first width is 1,"
            f" seconds are {MIN_SECONDS:g} to {MAX_SECONDS:g}"
        )
        points: list[tuple[int, float]] = []
        for at, pair in enumerate(self._list(key_path, value, allowed)):
            fits = isinstance(pair, list) and len(pair) == 2
            fits = fits and type(pair[0]) is int and _is_number(pair[1])
            if not fits or not MIN_SECONDS <= pair[1] <= MAX_SECONDS:
                raise self._refused((*key_path, at), pair, allowed)
            if pair[0] <= (points[-1][0] if points else 0):
                raise self._refused((*key_path, at), pair, "a width above the one before")
            points.append((pair[0], float(pair[1])))
        if points[0][0] != 1:
            raise self._refused((*key_path, 0), value[0], allowed)
        return points

    def _range(
        self, key_path: KeyPath, mapping: dict[str, Any], key: str, default: tuple[float, float]
    ) -> tuple[float, float]:
        value = mapping.get(key, default)
        fits = isinstance(value, Sequence) and len(value) == 2 and all(map(_is_number, value))
        if not fits or not 0 <= value[0] <= value[1]:
            raise self._refused((*key_path, key), value, "two numbers from 0 on, the smaller first")
        return float(value[0]), float(value[1])

    def _number(
        self,
        key_path: KeyPath,
        mapping: dict[str, Any],
        key: str,
        *,
        default: float | None = None,
        positive: bool = False,
        high: float = MAX_SECONDS,
    ) -> float:
        value = self._given(key_path, mapping, key, default)
        low = MIN_SECONDS if positive else 0.0
        if not _is_number(value) or not low <= value <= high:
            raise self._refused((*key_path, key), value, f"a number from {low:g} to {high:g}")
        return float(value)

    def _whole(
        self,
        key_path: KeyPath,
        mapping: dict[str, Any],
        key: str,
        *,
        low: int,
        default: int | None = None,
    ) -> int:
        value = self._given(key_path, mapping, key, default)
        if type(value) is not int or not low <= value <= MAX_COUNT:
            raise self._refused(
                (*key_path, key), value, f"a whole number from {low} to {MAX_COUNT}"
            )
        return value

    def _given(self, key_path: KeyPath, given: dict[str, Any], key: str, default: Any) -> Any:
        value = given.get(key, default)
        if value is None:
            raise self._document.error(key_path, f"{key} is missing")
        return value

    def _mapping(self, key_path: KeyPath, value: Any) -> dict[str, Any]:
        return self._document.mapping(key_path, ".".join(map(str, key_path)), value)

    def _list(self, key_path: KeyPath, value: Any, allowed: str) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise self._refused(key_path, value, allowed)
        return value

    def _refused(self, key_path: KeyPath, value: Any, allowed: str) -> UsageError:
        names = [str(step) for step in key_path if not isinstance(step, int)]
        return self._document.error(
            key_path, f"{'.'.join(names)} = {value!r} is refused: allowed is {allowed}"
        )


def _is_number(value: Any) -> bool:
    # Compared, not converted: a whole number may exceed the range of a float.
    return type(value) in (int, float) and abs(value) < math.inf
