"""Trial groups: the trials that a strategy wants trained next, each with the epoch to reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a TrialGroup: train ``trial`` until it has ``epochs`` epochs in all."""

    trial: str
    epochs: int


@dataclass(frozen=True, slots=True)
class Fork:
    """The replacement of ``trial``, which is stopped, by a new trial.

    The new trial continues from the state of the trial ``source`` after ``epoch``, and is trained
    up to epoch ``epochs``.
    """

    trial: str
    source: str
    epoch: int
    epochs: int


TrialGroup = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """A strategy's answer: trials to train next, and the number of configurations to ask for."""

    group: TrialGroup = ()
    ask: int = 0
