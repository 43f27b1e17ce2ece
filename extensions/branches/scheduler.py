"""Makes branches of trials when users ask for them: the scheduler's end.

Theory of operation. A branch is a trial that begins with another trial's state after an epoch
(``Trial.origin``), with values of its own, as a fork of population based training does. It belongs
to its user: no strategy knows the branch, and it trains to the epoch that the user gave. Samplers
treat it like any other trial. A branch draws the random numbers that its parent would have drawn,
so only the changed values differ; further copies draw their own.

If the state is in the store or in the memory of a trainer, the branch loads it. Otherwise the
branch's first segment says how the state can be computed: the *way*, a list of parts. Each part is
a trial of the study with its parameters, its keys, the epoch up to which the way follows it, and
its states in the store. The trainer computes the missing epochs again, and compares the hash
(``trainer``). So only the branch itself waits for the replay. If the replay is lost, the branch is
sent again like any trial.
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
    """Return the extension by which users branch trials."""
    branches = _Branches(parts)
    return Extension(
        name=NAME,
        needed_with=lambda trial: trial.branched,
        handlers={Branched: branches.on_branched},
        segment=branches.segment,
    )


class _Branches:
    """Makes branches, and tells trainers where each branch begins."""

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
        """Return the way to the state that a branch begins with, for the branch's segment."""
        if not trial.branched:
            return NO_VALUES
        return SegmentValues(ext={NAME: {"way": self._way(study, trial)}})

    def _way(self, study: StudyState, trial: Trial) -> list[dict[str, Any]]:
        """Return the parts of the way to the state that ``trial`` begins with, oldest first."""
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

        A state of another trial counts too if its hash is that of the trial's state at that epoch.
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
    """Return the number that stands in the keys of a trial's random numbers."""
    if trial.origin is not None and trial.origin.keys is not None:
        return trial.origin.keys
    shared = replicate_of(study.spec, trial.number)
    return trial.number if shared is None else shared
