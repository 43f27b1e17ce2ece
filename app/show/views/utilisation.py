"""Compute a study's use of its slots: training, idle time by cause, and time over the bound.

Theory of operation. Everything is computed from the rows of the ledger. The slots of a study are
the slots that trained for the study. Their time is counted from the submission to the end of the
study. The time between two epochs on a slot is idle time of the study, unless the slot trained for
another study. The cause of idle time is the first of these that applies:

- ``start-up``: no epoch of the study had begun anywhere;
- ``device``: the device was draining, resting or gone, as far as its last change tells;
- ``resize``: the slot's next epoch is of a trial whose width (its number of devices) changed;
- ``plan``: a trial was ready but waited for a plan, its dispatch or its state;
- ``barrier``: no trial was ready, and trials of a rung waited for others that were running;
- ``no work``: no trial was ready.

A trial is ready from its proposal to its first epoch, and between two epochs of one rung. A trial
is not ready while another trial trains an epoch for it.

A lane is a process that trains several trials in turn. A lane counts as one slot, and an epoch
occupies the lane only during the epoch's turns (``epoch_spans``).
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from ....profiling.costs.hull import Hull, hull
from ....scheduler.policies.planner.bounds import fluid_bound
from ....scheduler.resources.fair_share import apportion
from ....scheduler.strategies.base import pauses_of, rungs_of
from .delays import Span, epoch_spans

if TYPE_CHECKING:
    from ....scheduler.model.study import StrategySpec
    from ....scheduler.state.state import DeviceRecord
    from ...ledger.reader import Reader
    from ...ledger.rows import EpochRow, StudyRow, TrialRow

CAUSES = ("start-up", "device", "resize", "plan", "barrier", "no work")
Slot = tuple[str, int]

#: The relative accuracy of the bound if slots left during the study.
_NEAR = 1e-3


@dataclass(frozen=True, slots=True)
class Usage:
    """A study's use of its slots. Times are in seconds, summed over all slots."""

    #: The number of slots.
    slots: int
    #: The time of all slots, from the submission to the end of the study.
    total: float
    #: ``trained`` is the part of ``total`` in which the slots trained for this study. ``others`` is
    #: the part in which the slots trained for other studies.
    trained: float
    others: float
    #: The idle time, by its cause (``CAUSES``).
    idle: dict[str, float]
    #: The time since the first epoch began, divided by the fluid bound: the least time in which the
    #: slots could train the same epochs. The bound uses the study's own mean speeds. The bound
    #: counts each slot only while the slot was present. If trials wait for each other at rungs, the
    #: bound is the sum of the rungs' bounds. None means that no bound can be computed.
    over_bound: float | None

    @property
    def share(self) -> float:
        """The training time of the study, divided by the time that other studies did not use."""
        own = self.total - self.others
        return self.trained / own if own > 0 else 0.0


def usage(
    study: StudyRow,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    end: float,
    *,
    others: Sequence[EpochRow] = (),
    devices: Sequence[DeviceRecord] = (),
) -> Usage | None:
    """Return the study's use of its slots until ``end``, or None if the study has trained no epoch.

    ``end`` is in seconds since 1970. ``others`` contains epochs of other studies. ``devices``
    contains the devices in their present states.
    """
    trained_rows = [row for row in epochs if not row.taken_from]
    if not trained_rows:
        return None
    chains = _chains(epochs)
    rungs = frozenset(pauses_of(study.plan))
    ready = _union(_ready(trials, chains, rungs))
    rests = _union(_at_rungs(chains, rungs))
    began = min(row.begin for row in epochs)
    away = {record.device.name: record.at for record in devices if record.state != "joined"}
    seats = {record.device.name: record.device.seats for record in devices}
    turns = epoch_spans([*epochs, *others], seats)
    busy = _by_lane(epochs, turns[: len(epochs)], seats)
    other_busy = _by_lane(others, turns[len(epochs) :], seats)
    moved = _moved(chains)
    idle = dict.fromkeys(CAUSES, 0.0)
    trained = foreign = 0.0
    for slot, spans in busy.items():
        trained += sum(b - a for a, b in spans)
        other = _union(other_busy.get(slot, ()))
        for a, b in _gaps(_union(spans), study.created_at, end):
            foreign += _overlap(other, a, b)
            for left, right in _gaps(_clipped(other, a, b), a, b):
                _attribute_gap(idle, slot, (left, right), began, away, moved, ready, rests)
    return Usage(
        len(busy),
        len(busy) * (end - study.created_at),
        trained,
        foreign,
        idle,
        _over_bound(study.plan, _chains(trained_rows), _available_until(busy, away), began),
    )


def usage_of(reader: Reader, study: StudyRow) -> Usage | None:
    """Return the slot usage of a study in the ledger.

    Epochs of other studies are taken into account.
    """
    epochs = reader.epochs(study.id)
    end = study.finished_at or max((row.at for row in epochs), default=0.0)
    foreign = [row for other in beside(reader, study, end) for row in reader.epochs(other.id)]
    trials, devices = reader.trials(study.id), reader.devices()
    return usage(study, trials, epochs, end, others=foreign, devices=devices)


def beside(reader: Reader, study: StudyRow, end: float) -> list[StudyRow]:
    """Return the other studies that were active between the submission of ``study`` and ``end``."""
    return [
        other
        for other in reader.studies()
        if other.id != study.id
        and other.created_at < end
        and (other.finished_at or end) > study.created_at
    ]


def _attribute_gap(  # noqa: PLR0917 - what a gap is held against, one kind each
    idle: dict[str, float],
    slot: Slot,
    gap: Span,
    began: float,
    away: dict[str, float],
    moved: set[tuple[Slot, float]],
    ready: list[Span],
    rests: list[Span],
) -> None:
    """Add the idle time ``gap`` of a slot to ``idle``, split by cause.

    ``began`` is the time at which the study's first epoch began. ``away`` contains the time since
    which each device is not available, by the device's name. ``moved`` contains the starts of
    epochs before which a trial changed its width. ``ready`` and ``rests`` have the spans in which
    trials were ready or waited at a rung.
    """
    left, right = gap
    if left < began:
        idle["start-up"] += min(right, began) - left
        left = min(right, began)
    if (left_at := away.get(slot[0])) is not None and left_at < right:
        idle["device"] += right - max(left, left_at)
        right = max(left, left_at)
    if (slot, gap[1]) in moved:
        idle["resize"] += right - left
        return
    waited = _overlap(ready, left, right)
    idle["plan"] += waited
    barrier = min(_overlap(rests, left, right), right - left - waited)
    idle["barrier"] += barrier
    idle["no work"] += right - left - waited - barrier


def _chains(epochs: Iterable[EpochRow]) -> dict[str, list[EpochRow]]:
    chains: dict[str, list[EpochRow]] = {}
    for row in sorted(epochs, key=lambda row: row.epoch):
        chains.setdefault(row.trial, []).append(row)
    return chains


def _ready(
    trials: Sequence[TrialRow], chains: dict[str, list[EpochRow]], rungs: frozenset[int]
) -> Iterable[Span]:
    for trial in trials:
        rows = chains.get(trial.id, [])
        if rows and not rows[0].taken_from:
            yield trial.created_at, rows[0].at - rows[0].seconds
        for before, after in itertools.pairwise(rows):
            if before.epoch not in rungs and not after.taken_from:
                yield before.at, after.at - after.seconds


def _at_rungs(chains: dict[str, list[EpochRow]], rungs: frozenset[int]) -> Iterable[Span]:
    """Yield the spans in which a trial waited at a rung before it went on."""
    for rows in chains.values():
        for before, after in itertools.pairwise(rows):
            if before.epoch in rungs:
                yield before.at, after.at - after.seconds


def _moved(chains: dict[str, list[EpochRow]]) -> set[tuple[Slot, float]]:
    """Return the slot and the start time of each epoch before which the trial's width changed."""
    return {
        (slot, after.at - after.seconds)
        for rows in chains.values()
        for before, after in itertools.pairwise(rows)
        if before.width != after.width and not after.taken_from
        for slot in after.slots
    }


def _by_lane(
    epochs: Iterable[EpochRow], turns: Iterable[Sequence[Span]], seats: Mapping[str, int]
) -> dict[Slot, list[Span]]:
    """Return the spans of work of each lane.

    On a device without shared trainers, a lane is a slot.
    """
    by_lane: dict[Slot, list[Span]] = {}
    for row, spans in zip(epochs, turns, strict=True):
        for device, slot in row.slots:
            by_lane.setdefault((device, slot // seats.get(device, 1)), []).extend(spans)
    return by_lane


def _union(spans: Iterable[Span]) -> list[Span]:
    """Return the union of ``spans`` as disjoint spans, in ascending order."""
    disjoint: list[Span] = []
    for a, b in sorted(spans):
        if b <= a:
            continue
        if disjoint and a <= disjoint[-1][1]:
            disjoint[-1] = (disjoint[-1][0], max(b, disjoint[-1][1]))
        else:
            disjoint.append((a, b))
    return disjoint


def _gaps(union: Sequence[Span], begin: float, end: float) -> Iterable[Span]:
    at = begin
    for a, b in union:
        if a > at:
            yield at, min(a, end)
        at = max(at, b)
        if at >= end:
            return
    yield at, end


def _clipped(union: Sequence[Span], begin: float, end: float) -> list[Span]:
    first = max(0, bisect_right(union, (begin, begin)) - 1)
    clipped = []
    for a, b in union[first:]:
        if a >= end:
            break
        if b > begin:
            clipped.append((max(a, begin), min(b, end)))
    return clipped


def _overlap(union: Sequence[Span], begin: float, end: float) -> float:
    return sum(b - a for a, b in _clipped(union, begin, end))


def _available_until(busy: dict[Slot, list[Span]], away: dict[str, float]) -> list[float]:
    """Return the time at which each slot left.

    The time is infinite for a slot that was present until the end of the last epoch.
    """
    ends = {slot: max(b for _, b in spans) for slot, spans in busy.items()}
    last = max(ends.values())
    # A draining device still ends its epoch.
    until = [max(end, away.get(slot[0], math.inf)) for slot, end in ends.items()]
    return [each if each < last else math.inf for each in until]


def _min_time(work: Sequence[tuple[float, Hull]], left: Sequence[float]) -> float:
    """Return the least number of seconds that ``work`` takes on slots of limited presence.

    ``left`` contains the number of seconds for which each slot is present. Speeds are concave, so
    the fluid bound holds for the mean number of present slots. The longer the work takes, the lower
    that mean is. So the iteration starts with too few seconds, and the result of each step is a
    valid bound.
    """
    slots = float(sum(each > 0 for each in left))
    while True:
        seconds = fluid_bound(work, slots)
        mean = sum(max(0.0, min(each, seconds)) for each in left) / seconds
        if mean > slots * (1 - _NEAR):
            return seconds
        slots = mean


def _over_bound(
    plan: StrategySpec,
    chains: dict[str, list[EpochRow]],
    until: Sequence[float],
    began: float,
) -> float | None:
    rows = [row for chain in chains.values() for row in chain]
    widths = sorted({row.width for row in rows})
    seconds = {width: fmean(r.seconds for r in rows if r.width == width) for width in widths}
    if not all(seconds.values()):
        return None
    factors = {width: seconds[width] / seconds[widths[0]] for width in widths}
    speeds = hull((width, 1 / factors[width]) for width in widths)
    edges = rungs_of(plan) if plan.name == "halving" else ()
    layers: dict[int, list[float]] = {}
    for chain in chains.values():
        of_trial: dict[int, float] = {}
        for row in chain:
            layer = sum(edge < row.epoch for edge in edges)
            # The hull's unit of work: seconds at the narrowest width.
            of_trial[layer] = of_trial.get(layer, 0.0) + row.seconds / factors[row.width]
        for layer, work in of_trial.items():
            layers.setdefault(layer, []).append(work)
    bound = 0.0
    for _, works in sorted(layers.items()):
        seconds_left = [each - began - bound for each in until]
        bound += _min_time([(work, speeds) for work in works], seconds_left)
    return (max(row.at for row in rows) - began) / bound if bound > 0 else None


def words(found: Usage) -> str:
    """Return ``found`` as a line: *training 88 % of 2 slots; idle: barrier 12 %; ...*.

    The line explains the bound. If other studies used a part of the slots, the percentages refer to
    the remaining time.
    """
    training, *idled = apportion([found.trained, *found.idle.values()], 100)
    shares = sorted(zip(found.idle, idled, strict=True), key=lambda each: -each[1])
    idle = ", ".join(f"{cause} {percent} %" for cause, percent in shares if percent)
    slots = "1 slot" if found.slots == 1 else f"{found.slots} slots"
    text, alone = f"training {training} % of {slots}", ""
    if part := round(100 * found.others / found.total):
        text = f"{slots}: {part} % used by other studies; {training} % of the rest was training"
        alone = " of having the slots alone"
    text += f"; idle: {idle}" if idle else ""
    over = found.over_bound
    if over is None:
        return text
    bound = "the least time in which these slots could train these epochs"
    return f"{text}; {over:.2f} times the bound{alone}, which is {bound}"
