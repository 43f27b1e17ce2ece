"""The next trials of a study, which a trainer may inspect before they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ..model.study import shards_of
from ..model.trial import Trial
from .state import EngineState, StudyState

#: The most trials that are sent with one segment.
AT_ONCE = 4
#: The number of places from the front of the queue in which trials are looked for.
LOOKED_AT = 64


def next_trials(
    state: EngineState, study: StudyState, trial: Trial, unknown: Callable[[Trial], bool]
) -> list[dict[str, Any]]:
    """Return ``trial`` and the first waiting trials of its study, without those not ``unknown``.

    Each is a mapping with the fields of ``wire.messages.SegmentTask`` that a trainer needs to build
    the trial as it is before its first epoch.
    """

    def candidates() -> Iterator[Trial]:
        yield trial
        for name in islice(state.ready, LOOKED_AT):
            each = state.trials[name]
            if each.study == study.spec.id and each is not trial:
                yield each

    return [
        {
            "trial": each.id,
            "number": each.number,
            "params": dict(each.params),
            "shards": shards_of(study.spec, each.params),
        }
        for each in islice(filter(unknown, candidates()), AT_ONCE)
    ]
