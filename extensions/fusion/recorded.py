"""Returns the losses and gradients of a step: computed, or from a recording of an earlier step.

Theory of operation. A step of small networks spends most of its time outside of the kernels: in the
user's code, in the rules for all trials, and in the graph of gradients. All of these do the same in
each step. So one step's operators are recorded (``operators.recorder``), and later steps play the
recording: they call only these operators. Kernels and shapes are the same, so the bits are, too.

The user's code runs during a recording, but not when the recording is played. The values of a trial
that the code reads are known (``stand_in``), and a recording is played only while these values are
the same. A step that is recorded, and the first step that is played, are also computed: the
computed results are used, and the recorded or played results are compared with them. In each epoch
one step of one trial is compared with that trial alone (``epoch``), whether played or computed.
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

#: The losses (K,), and the gradient of each stack or None.
Made = tuple[Tensor, Sequence[Tensor | None]]
Batch = tuple[Tensor, ...]
Compute = Callable[[Batch], Made]
Seeds = Callable[[], Sequence[int]]
#: The first call of a kind of step that may be recorded, and the number of steps that must follow
#: in the epoch (any number in a group's later epochs). Recording and comparing cost about as much
#: time as twelve played steps save.
_RECORDED, _FOLLOW = 5, 12


@dataclass
class _Recorded:
    recording: Recording
    draws: bool
    #: The values that the code has read, and the last ``Common`` known to have the same values.
    reads: Reads
    common: Common
    #: True after the recording has been compared with a computed step.
    compared: bool = False

    def is_of(self, common: Common) -> bool:
        if common is not self.common and common.has_same(self.reads):
            self.common = common
        return common is self.common


class RecordedSteps:
    """The steps of one group. Steps of one kind differ only in the values of their batches."""

    def __init__(self, stacks: Sequence[Tensor], generators: Generators, rules: Rules) -> None:
        """Keep the arguments. A step may change no memory but that of the trials' ``stacks``."""
        self._stacks = stacks
        #: True if the gradients are small enough to be recorded.
        self._is_small = sum(each.nbytes for each in stacks) <= LARGEST
        self._generators = generators
        self._rules = rules
        #: Number of calls of each kind of step, and the ``Common`` of the first call's epoch.
        self._calls = Counter[Hashable]()
        self._since: dict[Hashable, Common] = {}
        #: Recordings by kind of step; None if steps of a kind cannot be recorded.
        self._recorded: dict[Hashable, _Recorded | None] = {}

    def forget(self) -> None:
        """Drop all recordings, since the steps compute something else from now on."""
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
        """Return ``compute(batch)``, possibly from a recording.

        Args:
            kind: Key of the steps that differ only in the values of their batches.
            batch: The batch of all trials.
            seeds: Returns the seeds of the generators; called if anything is drawn.
            common: The values that the code reads; a new object each epoch.
            compute: Computes the step.
            follow: Number of steps of the kind that are still to come in the epoch.

        Raises ``Mismatch`` if a recording gives other bits, as for code that counts its calls.
        """
        self._generators.begin(seeds)
        recording = self._recorded.get(kind)
        if recording is not None and recording.is_of(common):
            if recording.compared:
                return self._play(recording, batch)
            played = self._on_the_side(seeds, lambda: self._play(recording, _copied(batch)))
            results = compute(batch)
            if not self._is_same(played, results):
                raise Mismatch("a step had other bits than what was recorded of one before it")
            recording.compared = True
            return results
        if recording is not None:
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

        recorded_results: list[Tensor | None] = []
        with suppress(Exception):  # it may fail only because it is recorded; else it fails below
            recorded_results = self._on_the_side(seeds, record)
        results = compute(batch)
        self._recorded[kind] = None
        is_refused = recorder.refused or self._rules.changes_when_seen
        if recorded_results and not is_refused and self._is_same(recorded_results, results):
            with suppress(NotFused):  # the values that the code reads cannot be compared
                recording = recorder.end(recorded_results[: -len(self._stacks)])
                self._recorded[kind] = _Recorded(recording, recorder.draws, common.reads(), common)
        return results

    def _play(self, recording: _Recorded, batch: Batch) -> Made:
        if recording.draws:
            self._generators.drawing()
        losses, *gradients = recording.recording.play(batch)
        return losses, gradients

    def _on_the_side(self, seeds: Seeds, work: Callable[[], Made]) -> list[Tensor | None]:
        """Return the results of ``work`` and copies of the stacks after it; restore the stacks."""
        before = _copied(self._stacks)
        try:
            losses, gradients = work()
            return [losses, *gradients, *_copied(self._stacks)]
        finally:
            for each, old in zip(self._stacks, before, strict=True):
                each.copy_(old)
            self._generators.begin(seeds)

    def _is_same(self, expected: list[Tensor | None], results: Made) -> bool:
        losses, gradients = results
        return all(map(same, expected, [losses, *gradients, *self._stacks]))


def _copied(tensors: Sequence[Tensor]) -> Batch:
    return tuple(each.clone() for each in tensors)
