"""Turns a finished study into a workload, to simulate how it would run on other devices.

Trial k of the simulation is trial k of the study. Each of its epochs takes the recorded seconds and
has the recorded value. The strategy decides again from these values, in the order in which they
arrive in the simulation. An epoch that was never trained takes the mean seconds of its trial, and
has the trial's last value. Seconds at widths that were not measured come from a fitted model.

If trials have epochs in common, the trials keep their hyperparameters, so that the simulated engine
finds these epochs again. An epoch that a trial took over from another trial takes as long as in the
trial that trained it. Replicates do not keep their hyperparameters, and the epochs that they took
over take no time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING

from ...app.common.text import count, duration
from ...app.extensions import of_ends
from ...app.ledger.codec import spec_from_json
from ...app.show.views.utilisation import beside
from ...base.errors import UsageError
from ...profiling.costs.group_slowdown import GroupSlowdown
from ...profiling.costs.table import FIRST_RESIZE
from ...scheduler.model.events import EpochReported
from ...scheduler.model.study import study_of_trial
from .devices.transport import OVERHEAD
from .workload import SPACE, StudyWork, TrialWork, Workload, shape_of

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, StudyRow
    from ...profiling.costs.throughput import Shape
    from ...scheduler.model.study import StudySpec

#: Seconds. A longer gap between two segments on a device counts as waiting, not as overhead.
MAX_OVERHEAD = 1.0


def recorded(reader: Reader, study: StudyRow, max_width: int | None = None) -> Workload:
    """Return the finished study ``study`` as a workload.

    A simulated trial has up to ``max_width`` devices. If ``max_width`` is None, a trial has as many
    devices as the study allowed.

    Raises:
        UsageError: the study is not over, has no epoch, or took over epochs from other studies. The
            error is also raised if the study forks trials (``pbt``), since the values of a forked
            trial depend on its source.
    """
    spec = spec_from_json(study.spec_json)
    if study.finished_at is None:
        raise UsageError(f"study {study.name} is not over: its results are not known yet")
    if spec.strategy.name == "pbt":
        raise UsageError(f"study {study.name} forks trials: another plan would fork other trials")
    params = {trial.id: tuple(trial.params.items()) for trial in reader.trials(study.id)}
    rows: dict[str, list[EpochRow]] = {trial: [] for trial in params}
    epochs = reader.epochs(study.id)
    if any(row.taken_from and study_of_trial(row.taken_from) != spec.id for row in epochs):
        raise UsageError(f"study {study.name} took epochs of other studies over, without times")
    common = any(make(spec, 0, ()) is not None for make in of_ends("scheduler", "alike_at"))
    merges = common and spec.replicates == 1
    devices = {each.device.name: each.device for each in reader.devices()}
    together = any(each.seats > 1 for each in devices.values())
    group_slowdown, alone = _fused_times(reader, study.id) if together else (GroupSlowdown(), {})
    for row in _as_if_trained(epochs) if merges else epochs:
        seconds = alone.get((row.taken_from or row.trial, row.epoch), row.seconds)
        rows[row.trial].append(replace(row, seconds=seconds))
    if not epochs:
        raise UsageError(f"study {study.name} has no epoch: there is nothing to simulate")
    # Under full budget a trial ends where it ended before; otherwise the strategy decides.
    budgets = spec.strategy.name == "full"
    trial_ids = [trial for trial, each in rows.items() if each or not budgets]
    curves = [rows[trial] for trial in trial_ids]
    spec = _spec(spec, len(curves), max_width, merges=merges, fuses=bool(group_slowdown.ratios))
    shape, assumed = _shape(epochs, spec.max_width)
    worst = max((each[-1].value for each in curves if each), key=lambda value: -spec.sign * value)
    trials = _trials(curves, shape, worst)
    if merges:
        pairs = zip(trials, trial_ids, strict=True)
        trials = tuple(replace(work, params=params[trial]) for work, trial in pairs)
    overhead = _median(_gaps(epochs), OVERHEAD)
    prices = [gap - overhead for gap in _resizes(curves)]
    if spec.max_width > 1 and not prices:
        assumed.append(f"a resize takes {FIRST_RESIZE:g} s: none was recorded")
    kind = {devices[name].kind for row in epochs for name, _ in row.members if name in devices}
    end = max(row.at for row in epochs)
    took = end - min(row.at - row.seconds for row in epochs)
    n_slots = len({slot for row in epochs for slot in row.members})
    other_studies = beside(reader, study, end)
    shared = ", next to other studies, which are not simulated" if other_studies else ""
    return Workload(
        f"study {study.name}",
        (StudyWork(spec, trials, budgets=budgets, group_slowdown=group_slowdown),),
        resize=max(0.0, _median(prices, FIRST_RESIZE)),
        overhead=overhead,
        kind=kind.pop() if len(kind) == 1 else "",
        assumed=tuple(assumed),
        about=f"in fact it took {duration(took)} from its first step to its last, on"
        f" {count(n_slots, 'slot')}{shared}",
    )


def _fused_times(reader: Reader, study: str) -> tuple[GroupSlowdown, dict[tuple[str, int], float]]:
    """Return the slowdown of fused groups, and the seconds of an epoch alone by trial and epoch.

    A fused group is a set of trials trained together in one pass. Both results cover only epochs of
    fused groups and epochs whose batches were read once for several trials.
    """
    alone: dict[tuple[str, int], float] = {}
    ratios: dict[int, list[float]] = defaultdict(list)
    for _, event in reader.of_trials(study, EpochReported):
        size = event.together or event.readers
        if size > 1 and event.alone:
            alone[event.trial, event.epoch] = event.alone
            ratios[size].append(event.seconds / event.alone)
    return GroupSlowdown({n: min(1.0, median(each)) for n, each in ratios.items()}), alone


def _as_if_trained(epochs: Iterable[EpochRow]) -> Iterator[EpochRow]:
    """Yield the epochs as if no epoch had been taken over from another trial.

    An epoch that was taken over gets the seconds and the devices of the original training.
    """
    row_of = {(row.trial, row.epoch): row for row in epochs}
    for row in row_of.values():
        source = row_of.get((row.taken_from, row.epoch), row)
        yield replace(row, seconds=source.seconds, members=source.members)


def _spec(
    spec: StudySpec, trials: int, max_width: int | None, *, merges: bool, fuses: bool
) -> StudySpec:
    """Return ``spec`` with a contract that needs no code and no state, and without its sampler.

    With ``fuses``, the trials may be trained together, so the study keeps its contract. With
    ``merges``, trials may have epochs in common, so the study keeps its space and conditions.
    """
    plain = replace(
        spec,
        contract=spec.contract if fuses else "empty",
        n_trials=trials,
        sampler="random",
        sampler_options="{}",
        exactness="bitwise",
        epoch_timeout=None,
        max_width=max_width or spec.max_width,
        shards=max_width or spec.max_width,
        observations=(),
        further=(),
        constraints=(),
    )
    return plain if merges else replace(plain, space=SPACE, conditions=())


def _shape(epochs: Iterable[EpochRow], widest: int) -> tuple[Shape, list[str]]:
    """Return the ratios of seconds by width, and sentences about widths that were not measured.

    The ratio of a width is the seconds of an epoch on that many devices, divided by the seconds on
    one.
    """
    seconds: dict[int, list[float]] = defaultdict(list)
    for row in epochs:
        if not row.taken_from:
            seconds[row.width].append(row.seconds)
    measured = {width: median(each) for width, each in sorted(seconds.items())}
    missing = [width for width in range(1, widest + 1) if width not in measured]
    _, shape = shape_of(measured.items(), max(widest, *measured))
    if not missing:
        return shape, []
    measured_words = ", ".join(map(str, measured))
    missing_words = ", ".join(map(str, missing[:6])) + (", ..." if len(missing) > 6 else "")
    return shape, [
        f"seconds on {missing_words} devices are the fitted model's; measured was {measured_words}"
    ]


def _trials(
    curves: Sequence[Sequence[EpochRow]], shape: Shape, worst: float
) -> tuple[TrialWork, ...]:
    """Return the recorded work of each trial.

    A trial without epochs gets the mean time of all trials and the value ``worst``.
    """
    factors = dict(shape)
    trained = [[row for row in rows if not row.taken_from] for rows in curves]
    means = [fmean(_levels(rows, factors)) if rows else None for rows in trained]
    mean = fmean(each for each in means if each is not None)
    works = []
    for rows, own in zip(curves, means, strict=True):
        order = sorted(rows, key=lambda row: row.epoch)
        level = mean if own is None else own
        values = tuple(row.value for row in order)
        works.append(
            TrialWork(level, shape, len(order), _levels(order, factors), values)
            if order
            else TrialWork(level, shape, values=(worst,))
        )
    return tuple(works)


def _levels(rows: Iterable[EpochRow], factors: Mapping[int, float]) -> tuple[float, ...]:
    """Return the seconds that each epoch would take on one device.

    ``factors`` has the ratio by width, as in ``TrialWork.shape``.
    """
    return tuple(max(row.seconds, 1e-6) / factors[row.width] for row in rows)


def _gaps(epochs: Iterable[EpochRow]) -> list[float]:
    """Return the seconds between consecutive segments on the same slot.

    A gap lasts from the last step of a segment to the first step of the next segment. Gaps longer
    than ``MAX_OVERHEAD`` are left out.
    """
    slots: dict[tuple[str, int], list[EpochRow]] = defaultdict(list)
    for row in epochs:
        for slot in () if row.taken_from else row.members:
            slots[slot].append(row)
    gaps = []
    for rows in slots.values():
        for before, after in pairwise(sorted(rows, key=lambda row: row.at)):
            gap = after.begin - before.at
            if before.fence != after.fence and 0 <= gap <= MAX_OVERHEAD:
                gaps.append(gap)
    return gaps


def _resizes(curves: Iterable[Sequence[EpochRow]]) -> list[float]:
    """Return the seconds of each resize of a trial.

    A resize lasts from a trial's last step at one width to its first step at another width.
    """
    return [
        after.begin - before.at
        for rows in curves
        for before, after in pairwise(sorted(rows, key=lambda row: row.epoch))
        if before.width != after.width and not after.taken_from
    ]


def _median(values: Sequence[float], otherwise: float) -> float:
    return median(values) if values else otherwise
