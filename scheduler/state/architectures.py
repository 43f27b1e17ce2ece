"""The architectures of studies whose models have choices: who is counted next, and what is kept.

Theory of operation. A trainer that begins a trial counts its model, if the model makes choices.
From then on the study is known to have architectures, and each dispatch names trials whose own are
not known: itself, and the first ones that wait. So their costs and their memory are predicted
before they run (``profiling.base.architecture``). Other studies are not asked for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from ...profiling.base.footprint import Footprint
from ..model.decisions import TrialRef
from ..model.events import Described
from ..model.study import batch_of, shards_of
from ..model.trial import FINAL, Trial, TrialState
from .core import Core
from .state import EngineState, StudyState

#: The most trials that one dispatch names.
AT_ONCE = 4
#: How far down the queue trials are looked for.
LOOKED_AT = 64


class Architectures:
    """Keeps the architecture of each trial."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def unknown(self, study: StudyState, trial: Trial) -> tuple[TrialRef, ...]:
        """The trials to count with the next segment of ``trial``."""
        if study.architectures.first is None:
            return ()
        return named(self._state, study, trial, lambda each: each.architecture is None)

    def on_described(self, event: Described) -> None:
        """Keep what was counted of a trial, unless it is over, unknown or known already."""
        reporter = self._core.trial(event.trial)
        self._core.check_training(reporter, event.fence)
        trial = self._state.trials.get(event.of)
        if trial is None or trial.state in FINAL or trial.architecture is not None:
            return
        study = self._state.studies[trial.study]
        before = bool(study.architectures.counted), study.architectures.choices
        trial.architecture = event.architecture
        study.architectures.observe(event.architecture, event.choices)
        others: Sequence[str] = (trial.id,)
        if before != (True, study.architectures.choices):
            others = study.trials  # all have as many features
        for name in others:
            features = self._state.features_of(self._state.trials[name])
            self._state.costs.describe(study.spec.id, name, features)
        for footprint in self._core.extensions.footprints(trial):
            relate_tensors(study, trial, footprint)
        self._core.invalidate_plan()
        if trial.state is TrialState.WAITING:
            self._core.offer_slots()  # its costs and its need of memory are known better now


def relate_tensors(study: StudyState, trial: Trial, footprint: Footprint) -> None:
    """Learn from a trial's tensors, estimated or measured, what others' will be."""
    if trial.architecture is not None:
        study.architectures.observe_tensors(
            trial.architecture,
            batch_of(study.spec, trial.params),
            footprint.persistent,
            footprint.ephemeral,
        )


def named(
    state: EngineState, study: StudyState, trial: Trial, unknown: Callable[[Trial], bool]
) -> tuple[TrialRef, ...]:
    """``trial``, and the first of its study that wait, as far as they are ``unknown``."""

    def candidates() -> Iterator[Trial]:
        yield trial
        for name in islice(state.ready, LOOKED_AT):
            each = state.trials[name]
            if each.study == study.spec.id and each is not trial:
                yield each

    return tuple(
        TrialRef(each.id, each.number, each.params, shards_of(study.spec, each.params))
        for each in islice(filter(unknown, candidates()), AT_ONCE)
    )
