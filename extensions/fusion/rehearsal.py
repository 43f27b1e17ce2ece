"""Rehearsals: what trials of a structure would take together, found with copies of a single one.

Theory of operation. A trial that is alone in its lane is copied, and some steps of a few copies are
computed together and alone, in turn. So it is known what company would gain before a second trial
sits beside it, and where it would gain nothing none does. The trial itself is not touched: copies
have weights, optimisers and attributes of their own, and what they come to is dropped. Times are
processor times, taken while the other devices do whatever they do. Nothing is admitted by a
rehearsal, which compares equal trials: trials that sit together are compared and timed anew.

An epoch is more than its steps. All else in it is taken to gain nothing.

Rehearsals take a small part of the time that the process trains. Large trials have none: they would
gain little, and their copies need memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...profiling.costs.company import COPIES
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

#: Rehearsals may take so many seconds of processor time, and this part of what epochs take; and,
#: whatever others have taken, those of one structure this part of what its own epochs take.
FIRST, SHARE, OWN = 0.3, 0.02, 0.05
#: The longest step of all copies (seconds), and the most bytes of their states.
LONGEST, LARGEST = 0.1, 1 << 26
#: Attributes that every object of user code has, and does not change.
_GIVEN = {"params", "_pieces"}


@dataclass(slots=True)
class Rehearsed:
    """What is known of one structure: processor seconds of a trial's step, and of its epoch."""

    alone: float = 0.0
    #: What a step takes of each of so many copies, over that alone at the same time.
    steps_ratios: dict[int, float] = field(default_factory=dict)
    #: Steps of an epoch, and the fastest one that a trial had alone.
    steps: int = 0
    epoch: float = 0.0
    #: Processor seconds of all its epochs, and of its rehearsals.
    trained: float = 0.0
    spent: float = 0.0
    #: There is nothing more to find out.
    over: bool = False

    def is_complete(self) -> bool:
        """Whether all was rehearsed that ever will be.

        Two who sit together because two were rehearsed would never be alone for the rest.
        """
        return self.over or all(n in self.steps_ratios or self.too_long(n) for n in COPIES)

    def too_long(self, count: int) -> bool:
        """Whether a step of so many copies takes longer than others should wait."""
        return count * (self.alone or self.epoch / self.steps) > LONGEST

    def ratios(self) -> dict[int, float]:
        """What an epoch takes of each of so many trials, over what it takes alone."""
        part = min(1.0, self.steps * self.alone / self.epoch) if self.epoch else 0.0
        return {n: 1.0 - part * (1.0 - ratio) for n, ratio in self.steps_ratios.items()}


class Rehearsals:
    """The rehearsals of one process."""

    def __init__(self) -> None:
        self._found: dict[Any, Rehearsed] = {}
        self._trained = self._spent = 0.0

    def of(self, structure: Structure) -> dict[int, float]:
        """What an epoch takes of each of so many trials; empty until all is rehearsed."""
        found = self._found.get(structure.network)
        return {} if found is None or not found.is_complete() else found.ratios()

    def alone(self, run: Training, structure: Structure, seconds: float) -> str:
        """``run`` has trained an epoch alone in so many ``seconds`` of processor time.

        Rehearses if there is time. Returns why such trials cannot be trained together, if that
        came out.
        """
        self._trained += seconds
        found = self._found.setdefault(structure.network, Rehearsed())
        found.trained += seconds
        found.steps = -(-length(run.data.train) // run.batch_size)
        found.epoch = min(seconds, found.epoch or seconds)
        for count in COPIES:
            if found.over or count in found.steps_ratios:
                continue
            if not self._affords(found, count):
                break
            began = spent(run.device)
            try:
                self._rehearse(found, run, structure, count)
            except NotFused as refused:
                found.over = True
                return str(refused)
            except Exception as error:  # whatever is raised in code that runs for all at once
                found.over = True
                return f"together it fails: {type(error).__name__}: {error}".partition("\n")[0]
            finally:
                took = spent(run.device) - began
                self._spent += took
                found.spent += took
        return ""

    def _affords(self, found: Rehearsed, count: int) -> bool:
        """Whether steps of so many copies are short enough, and there is time for them."""
        if found.too_long(count):
            return False
        step = found.alone or found.epoch / found.steps
        steps = TIMED * (count + 1) if found.alone else (CHECKED + TIMED) * (count + 1)
        cost = steps * step
        affords = self._spent + cost <= FIRST + SHARE * self._trained
        return affords or found.spent + cost <= OWN * found.trained

    def _rehearse(self, found: Rehearsed, run: Training, structure: Structure, count: int) -> None:
        too_large = count * state_bytes(run.state()) > LARGEST
        if too_large or length(run.data.train) < run.batch_size:
            found.over = True
            return
        code, left_out = _twin(run.code)
        admission = Admission()
        if found.alone:
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
                found.over = True  # nobody knows
                return
            break
        alone = min(admission.step.alone)
        found.alone = min(alone, found.alone or alone)
        found.steps_ratios[count] = min(admission.step.together(count)) / alone


def _steps(
    copies: Sequence[Training],
    structure: Structure,
    admission: Admission,
    solo: SoloCopy,
    *,
    vector: bool,
) -> None:
    """Step copies together until ``admission`` has their times."""
    group = Group(copies, structure, vector=vector)
    rows = [Row(each, _pass_on(each)) for each in copies]

    def regroup(runs: Sequence[Training]) -> Group:
        raise AssertionError("no copy leaves")

    Epoch(rows, group, admission, solo, regroup).rehearse()


def _pass_on(run: Training) -> Callable[[int, int, int], None]:
    """Lets others have their turns between two steps."""

    def tick(epoch: int, step: int, steps: int) -> None:
        run.pass_turn(training=True)

    return tick


def _copied(run: Training, code: TorchTrainable) -> Training:
    made = SoloCopy(run)
    return replace(
        run, code=code, model=made.model, optimizer=made.optimizer, schedule=None, batches=None
    )


def _twin(code: TorchTrainable) -> tuple[TorchTrainable, set[str]]:
    """An object like ``code`` that shares nothing with it that can change.

    Also the names of the attributes that it does not have, since nobody could tell.
    """
    twin, left_out = copy.copy(code), set[str]()
    for name, value in vars(code).items():
        if name in _GIVEN:
            continue
        try:
            frozen(value, name)
            vars(twin)[name] = copy.deepcopy(value)
        except Exception:  # NotFused, and whatever user classes raise
            del vars(twin)[name]
            left_out.add(name)
    return twin, left_out
