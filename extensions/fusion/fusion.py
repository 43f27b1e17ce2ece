"""Trains epochs of several trials at once, with the bits that each trial has alone.

Theory of operation. Trials of one structure are stacked, and each step is computed for all of them.
Only the time changes: a kind of step is admitted after its bits and times have been compared with
steps alone, and is compared again at random for as long as the process lives. If something differs
or fails, all trials go back to the epoch's start and are trained alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from ...tasks.training.evaluation import evaluate
from ...tasks.training.loop import run_epoch
from .checks import spent
from .epoch import Epoch, Outcome, Result, Row, alone
from .evaluation import evaluate_all, same_numbers
from .group import Group, Snapshot
from .group_probe import GroupProbes
from .known import Admission, Known
from .operators.not_fused import NotFused
from .optimisers import StepsByItself
from .stand_in import Differs
from .structure import Structure

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from ...tasks.training.training import Training

_Metrics = dict[str, float]


def _alone(row: Row) -> Outcome:
    """Train a trial's epoch alone, by the usual loop; return its outcome."""
    try:
        return alone(run_epoch(row.training, row.tick))
    except BaseException as error:
        return error


class Fusion:
    """Trains one trainer's trials in fused groups, and remembers the admitted structures."""

    def __init__(self) -> None:
        self._known = Known()
        self._probes = GroupProbes()

    def structure(self, training: Training) -> Structure | None:
        """Return a trial's structure for grouping; None if the trial must be trained alone."""
        try:
            return self._known.structure(training)
        except NotFused:
            return None

    def refusal(self, training: Training) -> str:
        """Return the reason, in words, why a trial is trained alone; empty if there is none."""
        try:
            structure = self._known.structure(training)
        except NotFused as refused:
            return str(refused)
        return self._known.admission(structure).refusal()

    def group_size(self, structure: Structure, rows: int) -> int:
        """Return the size of the fused group in which ``rows`` trials would train.

        The size is ``rows``, or 1 if groups of ``rows`` trials are not faster, or 0 if trials of
        this structure are never fused.
        """
        admission = self._known.admission(structure)
        if admission.reason:
            return 0
        return rows if admission.may_step(rows) and not admission.slower else 1

    def run_epochs(self, rows: Sequence[Row]) -> list[Outcome]:
        """Train and evaluate an epoch of each trial, as ``run_epoch`` does.

        If the trials' structures differ, or if training alone is faster, each trial is trained
        alone. From time to time the way that is not in use is timed, too: if trials are fused, one
        of them is trained alone; if they are trained alone, all are fused. A trial's outcome is its
        result with its share of the seconds, or the exception that its tick or its code has raised.
        No trial's outcome affects another's. While this method runs, the trials' own turns
        (``Training.turn``) must be off.
        """
        structures = {row.structure or self.structure(row.training) for row in rows}
        structure = structures.pop()
        if structure is None or structures:
            self._known.disband([row.training for row in rows])
            return [_alone(row) for row in rows]
        admission, count = self._known.admission(structure), len(rows)
        if count == 1:
            return [self._single(rows[0], structure, admission)]
        if not admission.may_step(count):
            return self._each_alone(rows, admission)
        is_due = admission.epochs.is_due()
        if is_due and admission.slower:
            admission.epochs.try_again(count)
        admission.slower, was_slower = admission.epochs.refusal(count), admission.slower
        if admission.slower:
            return self._each_alone(rows, admission)
        if was_slower or not is_due:
            return self._fused(rows, structure)
        # Train the first trial alone: the others are then consecutive rows of the same stacks.
        [first_outcome] = self._timed(rows[:1], admission)
        return [first_outcome, *self._fused(rows[1:], structure, unfused=1)]

    def _single(self, row: Row, structure: Structure, admission: Admission) -> Outcome:
        """Train a single trial; probe the gain of a fused group if there is time."""
        began = spent(row.training.device)
        [outcome] = self._each_alone([row], admission)
        if admission.reason or not isinstance(outcome, Result):
            return outcome
        seconds = spent(row.training.device) - began
        admission.reason = self._probes.observe_alone(row.training, structure, seconds)
        slowdowns = {} if admission.reason else self._probes.of(structure)
        return replace(outcome, slowdowns=tuple(slowdowns.items()))

    def _fused(
        self, rows: Sequence[Row], structure: Structure, *, unfused: int = 0
    ) -> list[Outcome]:
        """Train ``rows`` as a fused group and record the times; return the outcomes.

        ``unfused`` is the number of the group's trials that are trained alone in this epoch. Times
        are recorded as if these were included.
        """
        admission = self._known.admission(structure)
        if len(rows) == 1:  # the other trial of two trained alone; keep the stacks of both
            return self._timed(rows, admission)
        outcomes = _Attempt(self._known, rows, structure, unfused).run()
        for outcome in outcomes:
            if isinstance(outcome, Result) and outcome.group_size == len(rows):
                admission.epochs.observe(outcome.seconds, len(rows) + unfused)
                break  # all trials of the group have equal shares of the time
        return outcomes

    def _each_alone(self, rows: Sequence[Row], admission: Admission) -> list[Outcome]:
        self._known.disband([row.training for row in rows])
        return self._timed(rows, admission)

    @staticmethod
    def _timed(rows: Sequence[Row], admission: Admission) -> list[Outcome]:
        """Train each trial alone and record the times; return the outcomes."""
        outcomes = [_alone(row) for row in rows]
        for outcome in outcomes:
            if isinstance(outcome, Result):
                admission.epochs.observe(outcome.seconds)
        return outcomes

    def forget(self, training: Training) -> None:
        """Drop everything kept about a trial that is no longer trained here."""
        self._known.disband([training])


class _Attempt:
    """One fused epoch of trials of one structure; if it fails, they are trained alone."""

    def __init__(
        self, known: Known, rows: Sequence[Row], structure: Structure, unfused: int
    ) -> None:
        self._known = known
        self._rows = rows
        self._unfused = unfused
        self._structure = structure
        self._admission = known.admission(structure)
        #: The trials' outcomes, by the ``id`` of the training.
        self._outcomes: dict[int, Outcome] = {}

    def run(self) -> list[Outcome]:
        """Train the epoch, and return the outcome of each trial."""
        clock = self._rows[0].training.clock
        began = clock()
        try:
            rows, group, losses = self._train(self._rows)
        except _Unfused:
            return [self._outcomes[id(row.training)] for row in self._rows]
        metrics: list[_Metrics] = [{"train_loss": loss} for loss in losses]
        self._evaluate(rows, group, "validation", metrics)
        self._evaluate(rows, group, "test", metrics)
        for row, measured in zip(rows, metrics, strict=True):
            self._end(row.training, measured)
        count = len(self._rows)
        share, alone = (clock() - began) / count, self._admission.epochs.alone
        return [
            replace(outcome, seconds=share, alone=alone, group_size=count)
            if isinstance(outcome := self._outcomes[id(row.training)], Result)
            else outcome
            for row in self._rows
        ]

    # -- training --------------------------------------------------------------------------------

    def _train(self, rows: Sequence[Row]) -> tuple[list[Row], Group, list[float]]:
        """Train the epoch; return the trials still in, their group, and their mean losses.

        Raises ``_Unfused`` if all trials have been trained alone instead.
        """
        runs = [row.training for row in rows]
        try:
            group = self._known.group(runs, self._structure)
            copy = self._known.copy(runs[0], self._structure)
            snapshot = Snapshot(group)
        except Exception as error:
            self._train_alone(rows, error)
        epoch = Epoch(rows, group, self._admission, copy, self._regroup, unfused=self._unfused)
        try:
            losses = epoch.train()
        except Exception as error:
            self._outcomes |= epoch.left
            snapshot.restore(epoch.group, epoch.left)
            rest = [row for row in epoch.rows if id(row.training) not in epoch.left]
            if isinstance(error, StepsByItself) and self._admission.vector and rest:
                self._admission.vector = False
                return self._train(rest)
            self._train_alone(rest, error)
        self._outcomes |= epoch.left
        return epoch.rows, epoch.group, losses

    def _regroup(self, runs: Sequence[Training]) -> Group:
        return self._known.group(runs, self._structure)

    def _train_alone(self, rows: Sequence[Row], error: Exception) -> None:
        outcomes = {id(row.training): _alone(row) for row in rows}
        self._outcomes |= outcomes
        guilty = any(not isinstance(outcome, Result) for outcome in outcomes.values())
        if reason := self._reason(rows[0].training if rows else None, error, guilty=guilty):
            self._admission.reason = reason
        raise _Unfused from error

    def _reason(self, run: Training | None, error: Exception, *, guilty: bool) -> str:
        """Return the reason why trials of this structure are trained alone from now on.

        The result is empty if the error gives no such reason.
        """
        if isinstance(error, Differs) and run is not None:
            self._known.learn(type(run.code), error.read)
            return ""
        if isinstance(error, NotFused):
            return str(error)
        # If the trial fails alone as well, its error is no reason against fusing the others.
        return "" if guilty else f"together it fails: {_first_line(error)}"

    # -- evaluation ------------------------------------------------------------------------------

    def _evaluate(
        self,
        rows: Sequence[Row],
        group: Group,
        part: str,
        metrics: Sequence[_Metrics],
    ) -> None:
        """Add the metrics over ``part`` of the data; a trial's exception becomes its outcome."""
        data = getattr(rows[0].training.data, part) if rows else None
        if data is None:
            return
        for row, measured, values in zip(
            rows, metrics, self._measured(group, part, data), strict=True
        ):
            if isinstance(values, BaseException):
                self._outcomes[id(row.training)] = values
            else:
                prefix = "test_" if part == "test" else ""
                measured |= {prefix + name: value for name, value in values.items()}

    def _measured(
        self, group: Group, part: str, data: Dataset[Any]
    ) -> Sequence[_Metrics | BaseException]:
        runs, admission = group.runs, self._admission
        about, device = len(runs) + self._unfused, runs[0].device

        def each() -> list[_Metrics | BaseException]:
            return [_caught(evaluate, run, part, data) for run in runs]

        if not admission.may_evaluate(about):
            return each()
        try:
            if admission.evaluation.undecided(about) and not group.is_watched(common=True):
                evaluate_all(group, part, data)  # the first one is watched, which takes longer
            began = spent(device)
            fused = evaluate_all(group, part, data)
        except Exception as error:
            outcomes = each()
            guilty = any(isinstance(values, BaseException) for values in outcomes)
            reason = self._reason(runs[0], error, guilty=guilty)
            admission.evaluation_reason = reason
            return outcomes
        seconds = (spent(device) - began) / len(runs)
        if not admission.evaluation.undecided(about):
            return fused
        began = spent(device)
        outcomes = each()
        admission.evaluation.alone.append((spent(device) - began) / len(runs))
        admission.evaluation.fused(about).append(seconds)
        for fused_values, other in zip(fused, outcomes, strict=True):
            if isinstance(other, BaseException) or not same_numbers(fused_values, other):
                admission.evaluation_reason = "a metric had other bits together than alone"
        return outcomes

    def _end(self, run: Training, metrics: _Metrics) -> None:
        """Step the trial's schedule and store its outcome, unless the trial has failed already."""
        if id(run) in self._outcomes:
            return
        outcome: Outcome = Result(metrics, 0.0)
        try:
            if isinstance(run.schedule, ReduceLROnPlateau):
                run.schedule.step(metrics["loss"])
            elif run.schedule is not None:
                run.schedule.step()
        except Exception as error:
            outcome = error
        self._outcomes[id(run)] = outcome


class _Unfused(Exception):
    """Raised when all trials have been trained alone."""


def _caught(measure: Callable[..., _Metrics], *args: Any) -> _Metrics | BaseException:
    try:
        return measure(*args)
    except BaseException as error:
        return error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
