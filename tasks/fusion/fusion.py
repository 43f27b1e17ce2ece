"""Epochs of several trials at once, with the bits that each has alone.

Theory of operation. Trials of one structure are stacked, and each step is computed for all of them.
That changes nothing that can be seen but the time: every kind of step is admitted by comparing bits
and times with steps alone, and is compared at random for as long as the process lives. When
something differs or fails, all go back to the epoch's start and are trained alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .attempt import Attempt, Outcome, alone
from .epoch import Row
from .frozen import NotFused
from .known import Known
from .structure import Structure

if TYPE_CHECKING:
    from ..training.training import Training


class Fusion:
    """Trains trials of one process together. One a trainer: it remembers what was admitted."""

    def __init__(self) -> None:
        self._known = Known()

    def structure(self, training: Training) -> Structure | None:
        """What a trial has in common with those it may be trained with; None: with nobody."""
        try:
            return self._known.structure(training)
        except NotFused:
            return None

    def refusal(self, training: Training) -> str:
        """Why it is trained alone, for people; empty if it is trained together, or may be."""
        try:
            structure = self._known.structure(training)
        except NotFused as refused:
            return str(refused)
        return self._known.admission(structure).refusal()

    def run_epochs(self, rows: Sequence[Row]) -> list[Outcome]:
        """Train and evaluate an epoch of each trial, as ``run_epoch`` does.

        All have one structure; where not, each is trained alone. A trial's outcome is its result
        with its share of the seconds, or what its tick or its code has raised. No trial's outcome
        changes another one's. No trial takes turns by itself (``Training.turn``) meanwhile.
        """
        structures = {self.structure(row.training) for row in rows}
        structure = structures.pop()
        if len(rows) < 2 or structures or structure is None:
            return [alone(row) for row in rows]
        if not self._known.admission(structure).may_step(len(rows)):
            return [alone(row) for row in rows]
        return Attempt(self._known, rows, structure).run()

    def forget(self, training: Training) -> None:
        """The trial is not trained here any more: nothing of it is kept."""
        self._known.forget(training)
