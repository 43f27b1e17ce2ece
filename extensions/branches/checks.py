"""Checks if a trial may be branched, for the command and the engine alike."""

from __future__ import annotations

from collections.abc import Iterator

from ...scheduler.model.study import number_of
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import StudyState

#: Reasons against a branch, each as a pair: True if the reason holds, and its words.
Reasons = Iterator[tuple[bool, str]]
#: The largest number of branches that one command may make.
MOST = 64
#: Contracts of trials whose states are kept.
_WITH_STATES = ("torch", "empty", "epochs")
_LOCAL = (
    "its objective draws values as it runs, and keeps its state to itself: enqueue the parameters,"
    " as study.enqueue_trial({...}), or write a TorchTrainable"
)
_NO_STATES = (
    "its objective keeps its state to itself: enqueue the parameters, or write a TorchTrainable or"
    " an epoch function, whose states are kept"
)
_NOT_EXACT = "it is not computed again, as its bits would be others"


def refusal(study: StudyState, trial: Trial, epoch: int, to: int, copies: int) -> str:
    """Return the reason against branches after ``epoch``, with the alternatives; empty if none."""
    return next((why for holds, why in _obstacles(study, trial, epoch, to, copies) if holds), "")


def last_epoch(study: StudyState) -> int:
    """Return the epoch that branches reach by default; 0 if the study has no such epoch."""
    return study.spec.strategy.max_epochs or 0


def _obstacles(study: StudyState, trial: Trial, epoch: int, to: int, copies: int) -> Reasons:
    spec = study.spec
    yield (
        spec.contract == "ask",
        "its user trains it: ask() for a trial, and tell() its result",
    )
    yield (
        spec.local,
        _LOCAL,
    )
    yield (
        spec.contract not in _WITH_STATES,
        _NO_STATES,
    )
    yield bool(study.ending), "its study has reached a limit: extend it"
    yield (
        spec.replicates > 1,
        f"each configuration of its study has {spec.replicates} replicates: enqueue the parameters",
    )
    yield not 1 <= copies <= MOST, f"{copies} copies: 1 to {MOST} can be made"
    yield trial.epoch <= trial.begin, "it has no epoch of its own yet"
    if trial.origin is not None:
        number = number_of(trial.origin.trial)
        yield (
            0 < epoch <= trial.begin,
            f"epoch {epoch} is of trial {number}, of which it was made: branch that one",
        )
    yield (
        not trial.begin < epoch <= trial.epoch,
        f"epoch {epoch} is none of its accepted ones, {trial.begin + 1} to {trial.epoch}",
    )
    durable_epochs = sorted(state.epoch for state in trial.parents if state.epoch > trial.begin)
    stored_words = (
        f"those after epochs {', '.join(map(str, durable_epochs))} are"
        if durable_epochs
        else "none of its own is"
    )
    yield (
        not spec.replays and epoch not in durable_epochs,
        f"the state after epoch {epoch} is not in the store; {stored_words}, and {_NOT_EXACT}",
    )
    yield not trial.hashes.get(epoch), f"the state after epoch {epoch} is not known"
    yield (
        to <= epoch,
        f"a branch after epoch {epoch} needs an epoch to reach: give --to {epoch + 1} or later",
    )
