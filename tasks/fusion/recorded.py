"""The losses and gradients of a step: computed, or played from what was recorded of one before.

Theory of operation. A step of small networks takes most of its time above the kernels: in the
user's code, in the rules for all trials, in the graph of gradients. From step to step all of that
does the same. So one step's operators are recorded (``operators.recorder``), and further ones call
them. They are the same kernels on the same shapes, so the bits are the same.

The user's code runs while it is recorded, and not when that is played. What it reads of a trial is
known (``stand_in``), and a recording is played as long as that has the same values. The first step
that a recording is for is computed as well, and compared. And in each epoch one step of one trial
is compared with that trial alone (``epoch``), be it played or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from ..system.tensor_bytes import same_bits
from .checks import Mismatch
from .operators.drawing import Generators
from .operators.not_fused import NotFused
from .operators.recorder import Recorder, Recording

if TYPE_CHECKING:
    from .stand_in import Common, Reads

#: The losses (K,), and the gradients of each stack; None where there is none.
Made = tuple[Tensor, Sequence[Tensor | None]]
Compute = Callable[[], Made]
Seeds = Callable[[], Sequence[int]]
#: In which call of its kind a step is recorded. To record and to compare it takes as long as about
#: seven played ones gain.
_RECORDED = 5


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

    def __init__(self, stacks: Sequence[Tensor], generators: Generators) -> None:
        """``stacks``: the memory of the trials, which alone a step may change."""
        self._stacks = stacks
        self._generators = generators
        self._calls = Counter[Hashable]()
        #: None: steps of this kind cannot be recorded.
        self._recorded: dict[Hashable, _Recorded | None] = {}

    def forget(self) -> None:
        """They compute something else from now on."""
        self._calls.clear()
        self._recorded.clear()

    def step(
        self,
        kind: Hashable,
        batch: tuple[Tensor, ...],
        seeds: Seeds,
        common: Common,
        compute: Compute,
    ) -> Made:
        """What ``compute`` gives of the batch. The code reads of ``common``.

        ``seeds``: what the generators begin with if anything is drawn. Raises ``Mismatch`` where
        the same calls give something else, as in code that counts its calls.
        """
        self._generators.begin(seeds)
        known = self._recorded.get(kind)
        if known is not None and known.is_of(common):
            if known.compared:
                return self._play(known, batch)
            return self._compare(known, batch, seeds, compute)
        if known is not None:
            del self._recorded[kind]
            self._calls[kind] = 0
        self._calls[kind] += 1
        if self._calls[kind] < _RECORDED or kind in self._recorded or batch[0].is_cuda:
            return compute()
        recorder = Recorder(batch, self._stacks, self._generators.all)
        with recorder:
            losses, gradients = compute()
        self._recorded[kind] = None
        if not recorder.refused:
            with suppress(NotFused):  # nobody could tell whether the code reads the same
                made = recorder.end([losses, *gradients])
                self._recorded[kind] = _Recorded(made, recorder.draws, common.reads(), common)
        return losses, gradients

    def _play(self, known: _Recorded, batch: tuple[Tensor, ...]) -> Made:
        if known.draws:
            self._generators.drawing()
        losses, *gradients = known.recording.play(batch)
        return losses, gradients

    def _compare(
        self, known: _Recorded, batch: tuple[Tensor, ...], seeds: Seeds, compute: Compute
    ) -> Made:
        """Play and compute it. Raises ``Mismatch``."""
        before = [each.clone() for each in self._stacks]
        played, of_played = self._play(known, batch)
        after = [each.clone() for each in self._stacks]
        for each, old in zip(self._stacks, before, strict=True):
            each.copy_(old)
        self._generators.begin(seeds)
        losses, gradients = compute()
        one, other = [played, *of_played, *after], [losses, *gradients, *self._stacks]
        if not all(map(_same, one, other)):
            raise Mismatch("a step had other bits than what was recorded of one before it")
        known.compared = True
        return losses, gradients


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return same_bits(one, other)
