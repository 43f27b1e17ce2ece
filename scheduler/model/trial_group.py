"""Trial groups: the trials that a strategy wants trained next, each up to a certain epoch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of a TrialGroup: train ``trial`` until it has reached ``epochs`` (absolute)."""

    trial: str
    epochs: int


@dataclass(frozen=True, slots=True)
class Fork:
    """``trial`` is stopped, and a new trial takes its place.

    The new trial continues from the state of ``source`` after ``epoch``, and is trained up to epoch
    ``epochs``.
    """

    trial: str
    source: str
    epoch: int
    epochs: int


TrialGroup = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """A strategy's answer: entries to run now, and the number of configurations to ask for."""

    group: TrialGroup = ()
    ask: int = 0
