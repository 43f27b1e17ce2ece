"""Retention of durable states: those that a restart may need, or a user may want later, are kept.

- Of a trial that may still run: its newest ``PARENTS_KEPT`` states, and those at the rungs of the
  strategy, where trials are compared. In population based training there are no rungs; instead, the
  state at the end of its last interval, from which others may continue, and the state from which it
  was itself forked are kept.
- Of a trial that is over: its last state, if the trial is among the study's best, or if it failed
  and may be tried again while its study lasts; else none.

The best are the completed trials with the best values, as many as the study keeps. With several
objectives, they are the trials on the Pareto front, ordered by the first objective. None of them
violates a constraint. If a study ends without a completed trial, the best of the trials that were
trained longest are kept instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..model.decisions import Parent
from ..model.pareto import front
from ..model.study import StudySpec
from ..model.trial import FINAL, Trial, TrialState

#: Number of states from which a trial may be restarted: the newest, and older ones in case a file
#: is damaged.
PARENTS_KEPT = 3


def retained(
    trial: Trial, pinned_epochs: Collection[int], *, best: bool, keep_failed: bool = False
) -> tuple[Parent, ...]:
    """Return the durable states (saved checkpoints) of the trial to keep, newest first.

    ``pinned_epochs`` are the epochs whose states are kept while the trial may still run. ``best``
    is True if the trial is among the study's best. ``keep_failed`` is True while a failed trial may
    be tried again.
    """
    if trial.state in FINAL:
        may_return = trial.state is TrialState.FAILED and keep_failed
        return trial.parents[: 1 if best or may_return else 0]
    newest, older = trial.parents[:PARENTS_KEPT], trial.parents[PARENTS_KEPT:]
    return (*newest, *(state for state in older if state.epoch in pinned_epochs))


def best_completed(trials: Iterable[Trial], spec: StudySpec) -> list[str]:
    """Return the ids of the best completed trials, best first.

    The number of trials is at most ``spec.keep_checkpoints``. Trials with equal values are in order
    of trial number.
    """
    return _best((t for t in trials if t.state is TrialState.COMPLETED), spec)


def best_at_the_end(trials: Iterable[Trial], spec: StudySpec) -> list[str]:
    """Return the ids of the best trials of a study that is over, best first.

    If no trial was completed, only the trials that were trained longest are compared.
    """
    candidates = [t for t in trials if t.state is not TrialState.FAILED and t.value is not None]
    if not any(t.state is TrialState.COMPLETED for t in candidates):
        longest = max((t.epoch for t in candidates), default=0)
        return _best((t for t in candidates if t.epoch == longest), spec)
    return best_completed(candidates, spec)


def _best(trials: Iterable[Trial], spec: StudySpec) -> list[str]:
    valued = [t for t in trials if t.value is not None and t.feasible]
    if spec.further:
        signs = [each.sign for each in spec.objectives]
        scores = [
            [sign * value for sign, value in zip(signs, (t.value or 0.0, *t.further), strict=True)]
            for t in valued
        ]
        valued = [valued[index] for index in front(scores)]
    ordered = sorted((-spec.sign * (t.value or 0.0), t.number, t.id) for t in valued)
    return [name for _, _, name in ordered[: spec.keep_checkpoints]]
