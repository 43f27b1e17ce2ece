"""The losses and gradients of a step: computed, or played from what was recorded of one before.

Theory of operation. A step of small networks takes most of its time above the kernels: in the
user's code, in the rules for all trials, in the graph of gradients. From step to step all of that
does the same. So one step's operators are recorded (``operators.recorder``), and further ones call
them. They are the same kernels on the same shapes, so the bits are the same.

The user's code runs while it is recorded, and not when that is played. What it reads of a trial is
known (``stand_in``), and a recording is played as long as that has the same values. What counts of
a step that is recorded, and of the first one that is played, is computed; both are compared with
that. And in each epoch one step of one trial is compared with that trial alone (``epoch``), be it
played or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from .checks import Mismatch, same
from .operators.drawing import Generators
from .operators.not_fused import NotFused
from .operators.recorder import LARGEST, Recorder, Recording
from .operators.rules import Rules

if TYPE_CHECKING:
    from .stand_in import Common, Reads

#: The losses (K,), and the gradients of each stack; None where there is none.
Made = tuple[Tensor, Sequence[Tensor | None]]
Batch = tuple[Tensor, ...]
Compute = Callable[[Batch], Made]
Seeds = Callable[[], Sequence[int]]
#: In which call of its kind a step is recorded at the soonest, and how many must follow it in the
#: epoch; but any number does in a group's later epochs. To record and to compare it takes as long
#: as about twelve played ones gain.
_RECORDED, _FOLLOW = 5, 12


@dataclass
class _Recorded:
    recording: Recording
    draws: bool
    #: What the code has read, and where it reads the same.
    reads: Reads
    common: Common
    #: Whether it was compared with what is computed.
    compared: bool = False

    def is_of(self, common: Common) -> bool:
        if common is not self.common and common.has_same(self.reads):
            self.common = common
        return common is self.common


class RecordedSteps:
    """The steps of one group. Steps of one kind differ in the values of their batches alone."""

    def __init__(self, stacks: Sequence[Tensor], generators: Generators, rules: Rules) -> None:
        """``stacks``: the memory of the trials, which alone a step may change."""
        self._stacks = stacks
        #: Else the gradients alone are too much to be recorded.
        self._is_small = sum(each.nbytes for each in stacks) <= LARGEST
        self._generators = generators
        self._rules = rules
        #: How often a step of a kind was computed, since which epoch.
        self._calls = Counter[Hashable]()
        self._since: dict[Hashable, Common] = {}
        #: None: steps of this kind cannot be recorded.
        self._recorded: dict[Hashable, _Recorded | None] = {}

    def forget(self) -> None:
        """They compute something else from now on."""
        self._calls.clear()
        self._recorded.clear()

    def step(
        self,
        kind: Hashable,
        batch: Batch,
        seeds: Seeds,
        common: Common,
        compute: Compute,
        *,
        follow: int,
    ) -> Made:
        """What ``compute`` gives of the batch. The code reads of ``common``, a new one each epoch.

        ``seeds``: what the generators begin with if anything is drawn. ``follow``: so many steps of
        the kind are still to come in the epoch. Raises ``Mismatch`` where the same calls give
        something else, as in code that counts its calls.
        """
        self._generators.begin(seeds)
        known = self._recorded.get(kind)
        if known is not None and known.is_of(common):
            if known.compared:
                return self._play(known, batch)
            played = self._beside(seeds, lambda: self._play(known, _copied(batch)))
            made = compute(batch)
            if not self._is_same(played, made):
                raise Mismatch("a step had other bits than what was recorded of one before it")
            known.compared = True
            return made
        if known is not None:
            del self._recorded[kind]
            self._calls[kind] = 0
        if self._calls[kind] == 0:
            self._since[kind] = common
        self._calls[kind] += 1
        if not self._is_to_be_recorded(kind, batch, common, follow):
            return compute(batch)
        return self._record(kind, batch, seeds, common, compute)

    def _is_to_be_recorded(self, kind: Hashable, batch: Batch, common: Common, follow: int) -> bool:
        if kind in self._recorded or self._rules.changes_when_seen:
            return False
        if batch[0].is_cuda or not self._is_small:
            return False
        pays = follow >= _FOLLOW or common is not self._since[kind]
        return pays and self._calls[kind] >= _RECORDED

    def _record(
        self, kind: Hashable, batch: Batch, seeds: Seeds, common: Common, compute: Compute
    ) -> Made:
        copies = _copied(batch)
        recorder = Recorder(copies, self._stacks, self._generators.all)

        def record() -> Made:
            with recorder:
                return compute(copies)

        seen: list[Tensor | None] = []
        with suppress(Exception):  # it may fail because it is seen; else it fails below
            seen = self._beside(seeds, record)
        made = compute(batch)
        self._recorded[kind] = None
        refused = recorder.refused or self._rules.changes_when_seen
        if seen and not refused and self._is_same(seen, made):
            with suppress(NotFused):  # nobody could tell whether the code reads the same
                ended = recorder.end(seen[: -len(self._stacks)])
                self._recorded[kind] = _Recorded(ended, recorder.draws, common.reads(), common)
        return made

    def _play(self, known: _Recorded, batch: Batch) -> Made:
        if known.draws:
            self._generators.drawing()
        losses, *gradients = known.recording.play(batch)
        return losses, gradients

    def _beside(self, seeds: Seeds, work: Callable[[], Made]) -> list[Tensor | None]:
        """What ``work`` gives, and what it makes of the stacks, which are then as they were."""
        before = _copied(self._stacks)
        try:
            losses, gradients = work()
            return [losses, *gradients, *_copied(self._stacks)]
        finally:
            for each, old in zip(self._stacks, before, strict=True):
                each.copy_(old)
            self._generators.begin(seeds)

    def _is_same(self, found: list[Tensor | None], made: Made) -> bool:
        losses, gradients = made
        return all(map(same, found, [losses, *gradients, *self._stacks]))


def _copied(tensors: Sequence[Tensor]) -> Batch:
    return tuple(each.clone() for each in tensors)
