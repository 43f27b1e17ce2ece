"""Makes trials out of other ones, at their users' will: the scheduler's end.

Theory of operation. A branch is a trial that begins with another one's state after an epoch
(``Trial.origin``), under values of its own, as a fork of population based training does. It is its
user's: no strategy knows it, and it goes on to the epoch that it was made for. Samplers see it as
any trial. It draws the random numbers that its parent would have drawn, so that the changed values
are all that differs; further copies draw their own.

Where the state is in the store, or in the memory of a trainer, the branch begins with it. Where it
is not, its first segment says how it came to be: the *way*, a list of parts. Each part is a trial
of the study with its parameters, its keys, the epoch up to which it counts, and its states in the
store. The trainer computes again what is missing, and compares the hash (``trainer``). So nothing
waits for a replay but the branch itself, and one that is lost in it is sent again as any trial.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...scheduler.engine.engine import Parts
from ...scheduler.model.decisions import Member, Parent
from ...scheduler.model.study import replicate_of, shards_of
from ...scheduler.model.trial import Origin, Trial
from ...scheduler.model.trial_group import Entry
from ...scheduler.state.core import Refused
from ...scheduler.state.extensions import NO_VALUES, Extension, SegmentValues
from ...scheduler.state.state import StudyState
from .checks import refusal
from .events import Branched

#: The name of the extension.
NAME = "branches"


def plug(parts: Parts) -> Extension:
    """Return the extension by which users make trials out of other ones."""
    branches = _Branches(parts)
    return Extension(
        name=NAME,
        needed_with=lambda trial: trial.branched,
        handlers={Branched: branches.on_branched},
        segment=branches.segment,
    )


class _Branches:
    """Makes branches, and tells their trainers where they begin."""

    def __init__(self, parts: Parts) -> None:
        self._core = parts.core
        self._state = parts.core.state
        self._checkpoints = parts.checkpoints
        self._proposals = parts.proposals

    def on_branched(self, event: Branched) -> None:
        parent = self._core.trial(event.trial)
        study = self._core.study(parent.study)
        if why := refusal(study, parent, event.epoch, event.to, event.copies):
            raise Refused(f"{parent.id}: {why}")
        self._proposals.go_on(study, NAME)
        states = list(self._states(study, parent, event.epoch))
        branches = list[Trial]()
        for copy in range(event.copies):
            trial = self._proposals.make_trial(study)
            keys = trial.number if copy else key_number(study, parent)
            trial.params = event.params
            origin = Origin(parent.id, event.epoch, keys=keys)
            self._checkpoints.begin_after(trial, origin, states)
            branches.append(trial)
        self._proposals.enter(study, tuple(Entry(trial.id, event.to) for trial in branches))
        for trial in reversed(branches):
            self._proposals.put_first(trial)
        self._core.touch_study(study)
        self._core.invalidate_plan()
        self._proposals.settle(study)
        self._core.offer_slots()

    def segment(
        self, study: StudyState, trial: Trial, members: tuple[Member, ...]
    ) -> SegmentValues:
        """Tell the trainer of a branch how the state that it begins with came to be."""
        if not trial.branched:
            return NO_VALUES
        return SegmentValues(ext={NAME: {"way": self._way(study, trial)}})

    def _way(self, study: StudyState, trial: Trial) -> list[dict[str, Any]]:
        """Return the trials whose epochs led to where ``trial`` begins, the first one first."""
        parts = list[dict[str, Any]]()
        while trial.origin is not None:
            parent, last = self._state.trials[trial.origin.trial], trial.origin.epoch
            states = self._states(study, parent, last) if study.spec.replays else ()
            parts.append(
                {
                    "trial": parent.id,
                    "params": dict(parent.params),
                    "shards": shards_of(study.spec, parent.params),
                    "system": [list(knob) for knob in parent.trained_with or parent.system],
                    "signature": parent.signature,
                    "keys": key_number(study, parent),
                    "begin": parent.begin,
                    "epoch": last,
                    "hash": parent.hashes.get(last, ""),
                    "holder": parent.holder if parent.epoch == last else "",
                    "states": [[s.epoch, s.uri, s.state_hash] for s in states],
                }
            )
            trial = parent
        return parts[::-1]

    def _states(self, study: StudyState, trial: Trial, last: int) -> Iterator[Parent]:
        """Yield the durable states of a trial's own epochs up to ``last``, newest first.

        Those of trials that had the same state then are its own, too.
        """
        states = dict[int, Parent]()
        for other in self._core.trials_of(study):
            for state in other.parents:
                same = trial.hashes.get(state.epoch) == state.state_hash
                if trial.begin < state.epoch <= last and same:
                    states.setdefault(state.epoch, state)
        for epoch in sorted(states, reverse=True):
            yield states[epoch]


def key_number(study: StudyState, trial: Trial) -> int:
    """Return the number in the keys of a trial's random numbers."""
    if trial.origin is not None and trial.origin.keys is not None:
        return trial.origin.keys
    shared = replicate_of(study.spec, trial.number)
    return trial.number if shared is None else shared
