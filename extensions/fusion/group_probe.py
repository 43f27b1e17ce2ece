"""Probes: times of fused groups, measured with copies of a single trial.

Theory of operation. If a trial is alone in its lane, a few copies of it are made, and some steps of
the copies are computed fused and alone, in turn. So the gain of a fused group is known before a
second trial shares the lane, and no trial joins if nothing would be gained. The trial itself is not
touched: copies have weights, optimisers and attributes of their own, and are dropped afterwards.
Times are processor times, measured under the current load of the other devices. A probe admits no
steps, since it compares equal trials: trials that share a lane are compared and timed again.

The parts of an epoch outside its steps are assumed to gain nothing.

Probes take a small part of the process's training time. Large trials are not probed: they would
gain little, and their copies need memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...profiling.costs.group_slowdown import COPIES
from ...tasks.checkpoints.state import state_bytes
from ...tasks.training.data import length
from .checks import SoloCopy, spent
from .epoch import Epoch, Row
from .group import Group
from .known import CHECKED, TIMED, Admission
from .operators.not_fused import NotFused
from .optimisers import StepsByItself
from .structure import Structure, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...tasks.contracts.contract import TorchTrainable
    from ...tasks.training.training import Training

#: Processor time that probes may take: seconds, plus a share of the time of all epochs. Apart from
#: that, a structure's probes may take a share of the time of the structure's own epochs.
FIRST, SHARE, OWN = 0.3, 0.02, 0.05
#: The longest fused step of a probe (seconds), and the most bytes of all copies' states.
LONGEST, LARGEST = 0.1, 1 << 26
#: Attributes that every object of user code has and that the code does not change.
_GIVEN = {"params", "_pieces"}


@dataclass(slots=True)
class ProbeTimes:
    """Measurements of one structure: processor seconds of a trial's step alone and of an epoch."""

    alone: float = 0.0
    #: By number of copies: seconds per copy of a fused step, divided by those of a step alone.
    steps_ratios: dict[int, float] = field(default_factory=dict)
    #: Number of steps of an epoch, and seconds of the fastest epoch of a trial alone.
    steps: int = 0
    epoch: float = 0.0
    #: Processor seconds of all epochs, and of all probes, of the structure.
    trained: float = 0.0
    spent: float = 0.0
    #: True if no further probes are to be made.
    over: bool = False

    def is_complete(self) -> bool:
        """Return True if no number of copies is left to probe.

        Ratios are used only then: once two trials share a lane, neither runs alone again, so
        larger groups could never be probed.
        """
        return self.over or all(n in self.steps_ratios or self.too_long(n) for n in COPIES)

    def too_long(self, count: int) -> bool:
        """Return True if a step of ``count`` copies takes longer than other trials should wait."""
        return count * (self.alone or self.epoch / self.steps) > LONGEST

    def ratios(self) -> dict[int, float]:
        """Return, by group size, a trial's epoch time in the group divided by its time alone."""
        part = min(1.0, self.steps * self.alone / self.epoch) if self.epoch else 0.0
        return {n: 1.0 - part * (1.0 - ratio) for n, ratio in self.steps_ratios.items()}


class GroupProbes:
    """The probes of one process."""

    def __init__(self) -> None:
        self._times: dict[Any, ProbeTimes] = {}
        self._trained = self._spent = 0.0

    def of(self, structure: Structure) -> dict[int, float]:
        """Return a structure's ratios by group size; empty until all sizes are probed."""
        times = self._times.get(structure.network)
        return {} if times is None or not times.is_complete() else times.ratios()

    def observe_alone(self, run: Training, structure: Structure, seconds: float) -> str:
        """Note that ``run`` has trained an epoch alone in ``seconds``; probe if time allows.

        ``seconds`` are measured by ``spent``. Returns the reason if such trials cannot be fused;
        empty if none was found.
        """
        self._trained += seconds
        times = self._times.setdefault(structure.network, ProbeTimes())
        times.trained += seconds
        times.steps = -(-length(run.data.train) // run.batch_size)
        times.epoch = min(seconds, times.epoch or seconds)
        for count in COPIES:
            if times.over or count in times.steps_ratios:
                continue
            if not self._affords(times, count):
                break
            began = spent(run.device)
            try:
                self._probe(times, run, structure, count)
            except NotFused as refused:
                times.over = True
                return str(refused)
            except Exception as error:  # the user's code, run for all copies at once, may raise any
                times.over = True
                return f"together it fails: {type(error).__name__}: {error}".partition("\n")[0]
            finally:
                took = spent(run.device) - began
                self._spent += took
                times.spent += took
        return ""

    def _affords(self, times: ProbeTimes, count: int) -> bool:
        """Return True if steps of ``count`` copies are short enough and probes have time left."""
        if times.too_long(count):
            return False
        step = times.alone or times.epoch / times.steps
        steps = TIMED * (count + 1) if times.alone else (CHECKED + TIMED) * (count + 1)
        cost = steps * step
        affords = self._spent + cost <= FIRST + SHARE * self._trained
        return affords or times.spent + cost <= OWN * times.trained

    def _probe(self, times: ProbeTimes, run: Training, structure: Structure, count: int) -> None:
        too_large = count * state_bytes(run.state()) > LARGEST
        if too_large or length(run.data.train) < run.batch_size:
            times.over = True
            return
        code, left_out = _twin(run.code)
        admission = Admission()
        if times.alone:
            admission.checked[run.batch_size] = CHECKED
        solo = SoloCopy(run)
        copies = [_copied(run, copy.copy(code)) for _ in range(count)]
        for vector in (True, False):
            try:
                _steps(copies, structure, admission, solo, vector=vector)
            except StepsByItself:
                continue
            except AttributeError as error:
                if error.name not in left_out:
                    raise
                times.over = True  # unknown: the copies lack an attribute that the code reads
                return
            break
        alone = min(admission.step.alone)
        times.alone = min(alone, times.alone or alone)
        times.steps_ratios[count] = min(admission.step.fused(count)) / alone


def _steps(
    copies: Sequence[Training],
    structure: Structure,
    admission: Admission,
    solo: SoloCopy,
    *,
    vector: bool,
) -> None:
    """Step the copies as a fused group until ``admission`` has all times."""
    group = Group(copies, structure, vector=vector)
    rows = [Row(each, _pass_on(each)) for each in copies]

    def regroup(runs: Sequence[Training]) -> Group:
        raise AssertionError("no copy leaves")

    Epoch(rows, group, admission, solo, regroup).probe()


def _pass_on(run: Training) -> Callable[[int, int, int], None]:
    """Return a tick that lets other trials have their turns between two steps."""

    def tick(epoch: int, step: int, steps: int) -> None:
        run.pass_turn(training=True)

    return tick


def _copied(run: Training, code: TorchTrainable) -> Training:
    solo = SoloCopy(run)
    return replace(
        run, code=code, model=solo.model, optimizer=solo.optimizer, schedule=None, batches=None
    )


def _twin(code: TorchTrainable) -> tuple[TorchTrainable, set[str]]:
    """Return a copy of ``code`` that shares nothing mutable with it, and the names left out.

    Attributes that cannot be compared or copied are left out.
    """
    twin, left_out = copy.copy(code), set[str]()
    for name, value in vars(code).items():
        if name in _GIVEN:
            continue
        try:
            frozen(value, name)
            vars(twin)[name] = copy.deepcopy(value)
        except Exception:  # NotFused, or any error that a user's class raises
            del vars(twin)[name]
            left_out.add(name)
    return twin, left_out
