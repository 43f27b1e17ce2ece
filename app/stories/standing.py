"""Why a trial goes no further, in a sentence: how it stands among those that came as far."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...scheduler.model.trial import TrialState
from ...scheduler.strategies.base import RULES, STRATEGIES
from ..common.text import count, number
from ..ledger.summary import sign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...scheduler.model.study import StudySpec
    from ..ledger.rows import EpochRow, StudyRow, TrialRow

#: Strategies that pause trials, and promote them later.
PROMOTES = set(STRATEGIES) - {"full", "pbt", *RULES}


def standing(
    study: StudyRow, spec: StudySpec, trial: TrialRow, epochs: Sequence[EpochRow]
) -> list[str]:
    """The sentence of a trial that is paused or was stopped, as a list; else empty.

    ``epochs`` are the study's. With several objectives there is no place among others.
    """
    if trial.state not in {TrialState.PAUSED, TrialState.STOPPED} or len(spec.objectives) > 1:
        return []
    there = {row.trial: row.value for row in epochs if row.epoch == trial.epoch}
    value = there.get(trial.id, math.nan)
    if not math.isfinite(value):
        return []
    better = sum(sign(study) * other > sign(study) * value for other in there.values())
    among = f"number {better + 1} of {len(there)} after {count(trial.epoch, 'epoch')}"
    metric = f"its {study.shown_metric} of {number(value)}"
    return [f"{_end(study, spec, trial)}: {metric} is {among}"]


def _end(study: StudyRow, spec: StudySpec, trial: TrialRow) -> str:
    promotes = spec.strategy.name in PROMOTES
    if trial.state == TrialState.PAUSED:
        return "it is paused, and goes on if it is promoted" if promotes else "it is paused"
    if promotes and study.finished_at is not None and trial.epoch == trial.target:
        return "it was paused, and stopped when its study was over without promoting it"
    return "it was stopped"  # at a limit of its study, for one, in the middle of a rung
