"""Replays tuning in the simulator on measured trainings, under one system after another.

The engine, Hyperband and the clock of ``extensions.simulation.simulator`` are as they are; what a
trial runs with, and what it pays to find out, is a ``System``'s. Ours is replayed by the race of
``extensions.system_tuning`` on measured windows and by its limit of what may be thrown away, since
simulated trainers measure no windows. It knows a race's end when the trial that measures
begins, so it is told a probe early (of at most 2 % of the work). Systems share hyperparameters and
accuracies, and validation is taken to cost a third of a step for each batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice, product
from statistics import fmean, median
from typing import Any

import numpy as np
from penstock.extensions.simulation.simulator import simulate
from penstock.extensions.simulation.workload import STEPS_PER_EPOCH, study_spec
from penstock.extensions.system_tuning.races.racing import Race
from penstock.extensions.system_tuning.tuning import MIN_PROBE_SECONDS, PROBE_SHARE
from penstock.profiling.devices.device import Device
from penstock.profiling.knobs.knobs import SystemConfig, config_text, merged
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.study import StrategySpec, StudySpec, number_of
from penstock.scheduler.strategies.hyperband import brackets

CORES, MAX_EPOCHS, ETA, RUNGS = 2, 9, 3, 3
#: Trials of one round of all of Hyperband's brackets.
TRIALS = sum(size for _, size in islice(brackets(RUNGS, ETA, 10**6, proportional=True), RUNGS))
ONE_THREAD: SystemConfig = (("threads", 1),)
LAYOUT: SystemConfig = (("memory_format", "channels_last"),)
#: What a trial with all cores may run with; the default first.
ALL: tuple[SystemConfig, ...] = ((), ONE_THREAD, LAYOUT, merged(LAYOUT, ONE_THREAD))
#: Steps of a window, with those that warm up, thrown away beside as many of the default.
WINDOW_STEPS = 8
#: Studies of one workload after which it counts as seen, also where a race goes on.
MOST_STUDIES = 50
#: A tenth as many validation batches as training batches, forward only.
VALIDATION = 1 / 9 / 3


@dataclass(frozen=True)
class Measured:
    """A training as measured: windows of seconds a step by configuration, alone and side by side.

    ``counters`` are of a window under the default; ``accuracy`` is by epoch.
    """

    params: dict[str, Any]
    steps: int
    accuracy: tuple[float, ...]
    alone: dict[str, tuple[float, ...]]
    pair: dict[str, tuple[float, ...]]
    counters: dict[str, float]

    @property
    def batch(self) -> int:
        """Examples of a step."""
        return int(self.params["batch_size"])

    def epoch(self, config: SystemConfig) -> float:
        """Seconds of an epoch, alone on the machine."""
        return median(self.alone[config_text(config)]) * self.steps * (1 + VALIDATION)


def stretch_of(pool: list[Measured]) -> float:
    """How many times as long a one-thread trial takes beside another: the geometric mean."""
    found = [median(m.pair[key]) / median(m.alone[key]) for m in pool for key in m.pair]
    return float(np.exp(np.mean(np.log(found))))


@dataclass
class Fixed:
    """The same configuration for every trial: V1, and any constant."""

    packed: bool = False
    config: SystemConfig = ()
    overlap: bool = False

    def turn(self, number: int, m: Measured, epoch: int) -> tuple[SystemConfig, float]:
        """The configuration that this epoch runs with, and seconds paid in addition to its own."""
        return merged(self.config, ONE_THREAD) if self.packed else self.config, 0.0

    def value(self, accuracy: float, spent: float) -> float:
        """What the study maximises, ``spent`` being the trial's seconds so far."""
        return accuracy


@dataclass
class Foreseen(Fixed):
    """Each trial runs with what is fastest for it."""

    def turn(self, number: int, m: Measured, epoch: int) -> tuple[SystemConfig, float]:
        usable = [c for c in ALL if not self.packed or dict(c).get("threads") == 1]
        return min(usable, key=m.epoch), 0.0


@dataclass
class Joint(Fixed):
    """V2: the system configuration is a hyperparameter, the objective accuracy over duration."""

    chance: np.random.Generator = field(default_factory=np.random.default_rng)
    _energy_mark: dict[int, SystemConfig] = field(default_factory=dict)

    def turn(self, number: int, m: Measured, epoch: int) -> tuple[SystemConfig, float]:
        if number not in self._energy_mark:
            self._energy_mark[number] = ALL[int(self.chance.integers(len(ALL)))]
        return self._energy_mark[number], 0.0

    def value(self, accuracy: float, spent: float) -> float:
        return accuracy / spent


@dataclass
class Published(Fixed):
    """PipeTune: one configuration an epoch after a first one on the default, then the fastest.

    A trial's result is stored by (cluster of raw counters, batch), and later trials take the one
    with the least absolute seconds. With ``chance``, a trial takes any trial's at random (random
    reuse).
    """

    chance: np.random.Generator | None = None
    known: dict[tuple[int, int], tuple[float, SystemConfig]] = field(default_factory=dict)
    _rows: list[list[float]] = field(default_factory=list)
    _plans: dict[int, list[SystemConfig]] = field(default_factory=dict)
    _keys: dict[int, tuple[int, int]] = field(default_factory=dict)

    def turn(self, number: int, m: Measured, epoch: int) -> tuple[SystemConfig, float]:
        if epoch == 1:
            return (), 0.0
        if number not in self._plans:
            key = self._keys[number] = (self._cluster(m), m.batch)
            if self.chance is not None:
                self._plans[number] = [ALL[int(self.chance.integers(len(ALL)))]]
            elif key in self.known:
                self._plans[number] = [self.known[key][1]]
            else:
                self._plans[number] = list(ALL[1:])
        plan = self._plans[number]
        if len(plan) == 1:
            return plan[0], 0.0
        if epoch - 2 < len(plan):
            return plan[epoch - 2], 0.0
        best = min(ALL, key=m.epoch)
        self._plans[number] = [best]
        key = self._keys[number]
        self.known[key] = min(self.known.get(key, (m.epoch(best), best)), (m.epoch(best), best))
        return best, 0.0

    def _cluster(self, m: Measured) -> int:
        from sklearn.cluster import KMeans

        self._rows.append([m.counters[name] for name in sorted(m.counters)])
        if len({tuple(row) for row in self._rows}) < 3:
            return 0
        model = KMeans(2, n_init=1, random_state=0).fit(self._rows)
        return int(model.labels_[-1])


@dataclass
class Raced(Fixed):
    """Ours: a slot per core, rounding knobs raced before first epochs, a race per batch bucket.

    As in the engine, races and what was spent on them outlive a study (``again``).
    """

    packed: bool = True
    overlap: bool = True
    chance: np.random.Generator = field(default_factory=np.random.default_rng)
    races: dict[int, Race] = field(default_factory=dict)
    probed: float = 0.0
    trained: dict[int, float] = field(default_factory=dict)
    wasted: dict[int, float] = field(default_factory=dict)
    _systems: dict[int, SystemConfig] = field(default_factory=dict)

    def again(self) -> Raced:
        """The system in the next study of this workload."""
        return Raced(chance=self.chance, races=self.races, trained=self.trained, wasted=self.wasted)

    def turn(self, number: int, m: Measured, epoch: int) -> tuple[SystemConfig, float]:
        extra = 0.0
        if number not in self._systems:
            race = self.races.setdefault(m.batch, Race())
            race.enter((LAYOUT,))
            self._systems[number] = merged(race.chosen, ONE_THREAD)
            if not race.over and m.batch in self.trained:
                extra = self._probe(race, m, number)
        config = self._systems[number]
        seconds = m.epoch(config)
        self.trained[m.batch] = self.trained.get(m.batch, 0.0) + seconds
        return config, extra

    def _probe(self, race: Race, m: Measured, number: int) -> float:
        """Measure windows before the first epoch, as many as allowed; the seconds taken."""
        ahead = m.epoch(ONE_THREAD) * max(1, TRIALS - number)
        wasted = self.wasted.get(m.batch, 0.0)
        allowed = PROBE_SHARE * (self.trained[m.batch] + ahead) - wasted
        if allowed < MIN_PROBE_SECONDS:
            return 0.0
        spent, config = 0.0, merged(LAYOUT, ONE_THREAD)
        while not race.over:
            theirs = float(self.chance.choice(m.alone[config_text(config)]))
            default = float(self.chance.choice(m.alone[config_text(ONE_THREAD)]))
            cost = WINDOW_STEPS * (theirs + default)
            if spent + cost > allowed:
                break
            spent += cost
            race.observe(LAYOUT, theirs / default)
            race.judge()
        self.wasted[m.batch] = wasted + spent
        self.probed += spent
        return spent


@dataclass
class _Work:
    """``simulate``'s ``Work``: ``drawn`` are the measured trainings by trial number."""

    system: Any
    drawn: list[Measured]
    beside: float
    ran: dict[int, list[float]] = field(default_factory=dict)

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        number = number_of(dispatch.segment.trial)
        m = self.drawn[number]
        config, extra = self.system.turn(number, m, epoch)
        spent = self.ran.setdefault(number, [])
        spent.append((m.epoch(config) + extra) * (self.beside if self.system.packed else 1.0))
        return spent[-1], -self.system.value(m.accuracy[epoch - 1], sum(spent))

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        return 0.0

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        return STEPS_PER_EPOCH

    def slowdown(self, at_work: int) -> float:
        return 1.0  # devices have one slot


@dataclass(frozen=True)
class Outcome:
    """The outcome of one tuning. Times are in seconds."""

    #: Time until it ended.
    tuning_time: float
    #: Time that trials held a core.
    core_seconds: float
    #: Accuracy and training time of the best model.
    accuracy: float
    training_time: float
    #: Time spent on probes.
    probed: float = 0.0
    #: The number of earlier studies of the workload.
    studies_before: int = 0


def replay(system: Any, drawn: list[Measured], beside: float) -> Outcome:
    """Tune once: trial number k is ``drawn[k]``.

    Where trials run side by side all of them take ``beside`` times as long, also one that is alone
    for a while.
    """
    strategy = StrategySpec("hyperband", MAX_EPOCHS, 1, ETA, overlap=system.overlap)
    work = _Work(system, drawn, beside)
    slots = CORES if system.packed else 1
    each = CORES // slots
    devices = [
        Device(f"cpu{at}", "n0", "cpu", tuple(range(at * each, (at + 1) * each)), None)
        for at in range(slots)
    ]
    ran = simulate([study_spec("tuning", len(drawn), 1, strategy=strategy)], devices, work)
    taken: dict[int, float] = {}
    best = (-float("inf"), 0, 0)
    for row in ran.epochs:
        number = number_of(row.trial)
        taken[number] = taken.get(number, 0.0) + row.seconds
        best = max(best, (-row.value, number, row.epoch))
    _, number, epoch = best
    return Outcome(
        ran.makespan,
        sum(taken.values()) * CORES / slots,
        drawn[number].accuracy[epoch - 1],
        taken[number],
        getattr(system, "probed", 0.0) * (beside if system.packed else 1.0),
    )


def constants() -> dict[str, Fixed]:
    """Every configuration that may be set once for all, by the name of its outcome."""
    found = {f"constant: alone, {config_text(c)}": Fixed(config=c) for c in ALL}
    packed = {
        f"constant: side by side, {config_text(c)}": Fixed(True, c, overlap=True)
        for c in ((), LAYOUT)
    }
    return found | packed


def draw(pool: list[Measured], seed: int) -> list[Measured]:
    """The ``TRIALS`` configurations of one tuning, the same for all systems."""
    chance = np.random.default_rng(seed)
    return [pool[int(i)] for i in chance.integers(len(pool), size=TRIALS)]


def tunings(pool: list[Measured], seed: int) -> dict[str, Outcome]:
    """All systems on the same configurations, drawn from the pool."""
    drawn = draw(pool, seed)
    beside = stretch_of(pool)
    ours = Raced(chance=np.random.default_rng(seed))
    systems: dict[str, Any] = {
        "v1": Fixed(),
        "v1_our_default": Fixed(packed=True, overlap=True),
        "v1_packed": Fixed(packed=True),
        "v2": Joint(chance=np.random.default_rng(seed)),
        "pipetune": Published(),
        "random_reuse": Published(chance=np.random.default_rng(seed)),
        "ours_exact": Fixed(packed=True, overlap=True),
        "ours": ours,
    }
    found = {name: replay(system, drawn, beside) for name, system in systems.items()}
    # The same study again until all races are over: a workload that is seen day after day.
    warm, before = ours.again(), 1
    while not all(race.over for race in warm.races.values()) and before < MOST_STUDIES:
        replay(warm, drawn, beside)
        warm, before = warm.again(), before + 1
    found["ours_warm"] = replace(replay(warm, drawn, beside), studies_before=before)
    for name, system in constants().items():
        found[name] = replay(system, drawn, beside)
    known = [
        replay(Foreseen(packed=packed, overlap=overlap), drawn, beside)
        for packed, overlap in product((False, True), repeat=2)
    ]
    # The order of trials may make a schedule of faster ones longer: the best of all is foreseen.
    steady = [found["ours_warm"], found["v1_our_default"]]
    fixed = [found[name] for name in constants()]
    found["oracle"] = min((*known, *fixed, *steady), key=lambda each: each.tuning_time)
    return found


def best_constant(seeds: list[dict[str, Outcome]], names: Iterable[str]) -> str:
    """That of the constants ``names`` with the least mean tuning time, chosen in hindsight."""
    return min(names, key=lambda name: fmean(seed[name].tuning_time for seed in seeds))
