"""A TrialGroup: what a strategy wants to have trained next, and up to where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of a TrialGroup: train ``trial`` until it has reached ``epochs`` (absolute)."""

    trial: str
    epochs: int


@dataclass(frozen=True, slots=True)
class Fork:
    """``trial`` is stopped, and a new one goes on in its stead from another one's state.

    That of ``source`` after ``epoch``; it is to be trained until it has reached ``epochs``.
    """

    trial: str
    source: str
    epoch: int
    epochs: int


TrialGroup = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """A strategy's answer: entries to run now, and configurations to ask for."""

    group: TrialGroup = ()
    ask: int = 0
