"""Fused groups: trials in the seats of one lane train their epochs together.

Theory of operation. A trial at the beginning of an epoch *rests* (``extensions.lanes.turns``): each
other trial has a turn, in which trials of the same structure also reach the beginning of an epoch
and rest. The first trial to continue leads: in its own turn, it trains an epoch of every resting
trial of its structure (``fusion``), and holds those trials meanwhile. A trial that arrives in the
middle of that epoch and could take part rests until the epoch ends, and then once more, until the
trials of that epoch reach their next one. No trial waits for a trial that computes something else.
Each trial keeps its own segment, fence, progress, reports, cut and failure: only the epoch's steps
are computed together.

Between two steps the leading trial may pass its turn on, as any trial does. If the leading trial is
fenced off meanwhile, its own next step notices that, since the current step may be another trial's.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ...tasks.process.pipe import Abandoned
from ...tasks.trainer.hooks import Epoch, Hook, Parts
from ...tasks.training import loop
from ...tasks.training.training import Training
from .epoch import Outcome, Result, Row
from .fusion import Fusion
from .name import NAME
from .structure import Structure

if TYPE_CHECKING:
    from ..lanes.turns import Turn

#: The name of the note that holds the last reported reason for training the trial alone.
_UNFUSED = "is trained alone"


@dataclass(slots=True, eq=False)
class _Waiting:
    """A trial that waits at the beginning of an epoch, and the epoch's outcome once it is known."""

    trial: str
    turn: Turn
    structure: Structure
    training: Training
    tick: loop.Tick
    outcome: Outcome | None = None
    #: Number of trials in the fused group, including this one; 0 if it is never fused.
    group_size: int = 1


@dataclass(frozen=True, slots=True)
class _Lent:
    """The turn of the leading trial, lent to the others while it computes."""

    turn: Turn

    def clock(self) -> float:
        return self.turn.clock()

    def is_over(self) -> bool:
        return self.turn.is_over()

    def pass_on(self) -> None:
        with suppress(Abandoned):
            self.turn.pass_on()


def hook(parts: Parts) -> Hook:
    """Return the hook of one trainer."""
    return FusionHook()


class FusionHook(Hook):
    """Trains the trials of one trainer in fused groups."""

    def __init__(self) -> None:
        self._fusion = Fusion()
        self._waiting: list[_Waiting] = []
        #: Number of trials being trained in the turn of each leading trial.
        self._led: dict[_Waiting, int] = {}
        #: Trials that have been fused and are still in memory.
        self._trained: dict[str, Training] = {}

    def run_epoch(self, epoch: Epoch) -> loop.Result | None:
        """Train the epoch, in a fused group if possible; return its result.

        Returns None, with nothing done, if no other trial may take part. Raises any error of this
        trial's own code, and ``Abandoned`` if the trial is fenced off.
        """
        run, training = epoch.segment.run, epoch.segment.training
        turn = cast("Turn | None", run.turn)  # only the lanes extension opens several runs
        if NAME not in run.task.ext or epoch.measured or turn is None or turn.alone:
            return None
        structure = self._fusion.structure(training)
        if structure is None:
            epoch.values["together"] = 0
            return loop.run_epoch(training, epoch.tick)
        own = _Waiting(run.task.trial, turn, structure, training, epoch.tick)
        self._waiting.append(own)
        try:
            turn.rest()
            while own.outcome is None and self._could_join(structure):
                run.check()
                turn.rest()
                if not self._could_join(structure):
                    turn.rest()  # until the trials of the epoch that ended reach their next one
        finally:
            if own in self._waiting:
                self._waiting.remove(own)
        if own.outcome is None:
            self._lead(own)
        if isinstance(own.outcome, BaseException):
            raise own.outcome
        assert own.outcome is not None
        epoch.values["together"] = own.group_size
        epoch.values["alone"] = own.outcome.alone
        epoch.values["company"] = own.outcome.slowdowns
        return own.outcome

    def report(self, epoch: Epoch) -> None:
        """Report, once for each reason, why the trial is not fused, and if it shares batches."""
        if epoch.values.get("together") != 0:
            return
        segment = epoch.segment
        why = self._fusion.refusal(segment.training)
        if segment.warm.notes.get(_UNFUSED, "") != why:
            segment.warm.notes[_UNFUSED] = why
            pays = "; batches are read once for all trials in its lane, which pays"
            reads_once = epoch.values.get("readers", 0) > 0
            segment.run.remarks(f"its steps are its own: {why}{pays if reads_once else ''}")

    def forget(self, trial: str) -> None:
        """Drop everything kept about a trial that is no longer in memory."""
        if (training := self._trained.pop(trial, None)) is not None:
            self._fusion.forget(training)

    def _could_join(self, structure: Structure) -> bool:
        """Return True if an epoch in progress could have had one more trial of ``structure``."""
        return any(
            each.structure == structure and self._fusion.group_size(structure, n + 1) > 1
            for each, n in self._led.items()
        )

    def _lead(self, own: _Waiting) -> None:
        """Train an epoch of ``own`` and of waiting trials with its structure, in its turn."""
        followers = [each for each in self._waiting if each.structure == own.structure]
        self._waiting = [each for each in self._waiting if each.structure != own.structure]
        # The order does not depend on the leader, so the stacks of the last epoch are reused.
        group = sorted([own, *followers], key=lambda each: each.trial)
        own.turn.hold([each.turn for each in followers])
        self._led[own] = len(group)
        rows, lent = [], _Lent(own.turn)
        for each in group:
            self._trained[each.trial] = each.training
            each.training.turn = lent
            rows.append(Row(each.training, self._tick(own, each, lent), each.structure))
        try:
            for each, outcome in zip(group, self._fusion.run_epochs(rows), strict=True):
                each.outcome = outcome
                size = outcome.group_size if isinstance(outcome, Result) else 1
                each.group_size = size if self._fusion.group_size(own.structure, len(group)) else 0
        finally:
            del self._led[own]
            for each in group:
                each.training.turn = each.turn
            own.turn.let_go([each.turn for each in followers])

    @staticmethod
    def _tick(own: _Waiting, each: _Waiting, lent: _Lent) -> loop.Tick:
        """Return a tick that calls ``each``'s tick, then passes on ``own``'s turn if it has ended.

        If the tick of a trial other than ``own`` raises, that trial is let go at once.
        """

        def tick(epoch: int, step: int, steps: int) -> None:
            try:
                each.tick(epoch, step, steps)
            except BaseException as error:
                if each is not own:
                    each.outcome = error
                    each.training.turn = each.turn
                    own.turn.let_go([each.turn])
                raise
            if lent.is_over():
                lent.pass_on()

        return tick
