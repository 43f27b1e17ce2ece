"""Checks whether a trial's state allows a command, for the command line and the engine alike."""

from __future__ import annotations

from collections.abc import Iterator

from ...scheduler.model.study import forks
from ...scheduler.model.trial import FINAL, Trial, TrialState
from ...scheduler.state.state import StudyState
from ...scheduler.strategies.base import UNBOUNDED, comparison_epochs
from .events import Verb

#: Possible reasons to refuse a command. Each is a condition, and the text that the user sees if the
#: condition is True.
Reasons = Iterator[tuple[bool, str]]
#: The commands that continue a trial which is over. They reopen the study if it is finished.
REVIVES = ("promote", "retry")
#: The strategies whose trials wait for each other at a rung (an epoch at which trials are
#: compared).
SYNCHRONOUS = ("halving", "hyperband")
#: The reason to refuse a command for a forked trial that cannot be computed again from its start.
_NO_STATE = "it was forked from another trial, and none of its states is kept"


def refusal(study: StudyState, trial: Trial, verb: Verb, to: int = 0) -> str:
    """Return the reason to refuse ``verb`` for a trial, with an alternative for the user.

    ``to`` is the epoch given with a promotion, or 0. The result is empty if the command is allowed.
    """
    if study.spec.contract == "ask" or trial.id in study.handed_out or trial.id in study.waiting:
        return "its user trains it: tell() its result, or ask for another"
    if study.ending:
        return "its study has reached a limit: extend it"
    obstacles = {"promote": _not_promoted, "retry": _not_retried}.get(verb)
    if obstacles is not None:
        return next((why for holds, why in obstacles(study, trial, to) if holds), "")
    withheld, rests = trial.id in study.withheld, trial.state is TrialState.PAUSED
    sent_on = ": it waits at its rung, and penstock trial promote sends it on" if rests else ""
    resumed = f"penstock trial resume {study.spec.id}/{trial.number}"
    reasons = (
        (trial.state in FINAL, f"it is {trial.state} already"),
        (verb == "pause" and withheld, f"it is paused already: {resumed}"),
        (verb == "resume" and not withheld, f"nobody has paused it{sent_on}"),
    )
    return next((why for holds, why in reasons if holds), "")


def goal(study: StudyState, trial: Trial, to: int = 0) -> int:
    """Return the epoch that a promoted trial is to reach: ``to`` if given, otherwise its next rung.

    A trial that waits for a slot is to reach the target for which it waits. For a running trial,
    the next rung is the first one after its target. Return 0 if there is no such rung.
    """
    plan = study.spec.strategy
    last = plan.max_epochs or UNBOUNDED
    if to:
        return to
    if trial.state is TrialState.WAITING:
        return trial.target
    from_epoch = trial.target if trial.state is TrialState.RUNNING else trial.epoch
    rungs = (*comparison_epochs(plan), last)
    return next((epoch for epoch in rungs if epoch > from_epoch), 0)


def _has_no_state(study: StudyState, trial: Trial) -> bool:
    """Return True if the trial has no kept state and cannot be computed again from its start.

    A forked trial cannot be computed again, unless it is a branch in a study with exact replay.
    """
    can_be_computed = trial.origin is None or (trial.branched and study.spec.replays)
    return not can_be_computed and not trial.parents


def _not_promoted(study: StudyState, trial: Trial, to: int) -> Reasons:
    last = study.spec.strategy.max_epochs
    yield trial.state is TrialState.FAILED, "it failed: penstock trial retry runs it again"
    yield (
        trial.state is TrialState.CANCELLED,
        "it was cancelled: enqueue its parameters",
    )
    if last is None or study.spec.local:
        yield True, "its objective says itself how long it is trained"
        return
    yield (
        0 < to <= trial.epoch,
        f"it has {trial.epoch} epochs already: give a later one, as --to {trial.epoch + 1}",
    )
    yield (
        forks(study.spec) and (trial.state is not TrialState.COMPLETED or to <= last),
        f"its population decides up to epoch {last}: give --to a later one once it is complete",
    )
    yield (
        study.spec.contract == "objective" and max(to, trial.epoch) > last,
        f"its objective reports nothing after epoch {last}",
    )
    yield _has_no_state(study, trial), _NO_STATE
    yield (
        goal(study, trial, to) == 0,
        f"epoch {last} is its last one: --to {last + 1} trains it beyond",
    )


def _not_retried(study: StudyState, trial: Trial, to: int) -> Reasons:
    yield (
        trial.state is not TrialState.FAILED,
        f"it is {trial.state}, and only a trial that failed is tried again",
    )
    yield _has_no_state(study, trial), _NO_STATE
    yield (
        study.spec.local,
        "what it drew is not kept: study.enqueue_trial(study.trials[N].params)",
    )
