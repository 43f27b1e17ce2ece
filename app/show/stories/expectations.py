"""Say which final value the freeze-thaw strategy expected when it sent each attempt of a trial.

The strategy's model is a function of the epochs so far, which are in the ledger. So nothing is
stored for the model. This module fits the model again, in the same way as the strategy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....scheduler.strategies.curve_ensemble import Prior, forecasts, learned
from ....scheduler.strategies.freeze_thaw import GROWTH
from ...common.text import number

if TYPE_CHECKING:
    from ....scheduler.model.study import StudySpec
    from ...ledger.rows import EpochRow

#: The sentence for an attempt that was sent before any learning curve could be predicted.
BY_RUNGS = "no learning curve can be predicted yet: trials are chosen as by ASHA"


def expectations(spec: StudySpec, trial: str, epochs: Sequence[EpochRow]) -> dict[int, str]:
    """Return a sentence for each attempt that continued ``trial``, by the fence of the attempt.

    A fence is the number of an attempt. ``epochs`` contains the epochs of the whole study. The
    result is empty for any other strategy than freeze-thaw.
    """
    last = spec.strategy.max_epochs
    if spec.strategy.name != "freeze_thaw" or last is None:
        return {}
    sentences = dict[int, str]()
    first = {row.fence: row for row in reversed(epochs) if row.trial == trial}
    unmatched = sorted(first.values(), key=lambda row: row.begin, reverse=True)
    curves, prior, learned_at = dict[str, list[float]](), None, 0
    within = sorted((row for row in epochs if row.epoch <= last), key=lambda row: row.at)
    for n, row in enumerate(within, start=1):
        while unmatched and unmatched[-1].begin < row.at:
            attempt = unmatched.pop()
            if trial in curves:
                sentences[attempt.fence] = _expected(spec, trial, curves, prior, last)
        curves.setdefault(row.trial, []).append(spec.sign * row.value)
        if n >= GROWTH * learned_at:
            usable = {t: c for t, c in curves.items() if all(map(math.isfinite, c))}
            prior, learned_at = learned(usable, last) if usable else None, n
    return sentences


def _expected(
    spec: StudySpec,
    trial: str,
    curves: dict[str, list[float]],
    prior: Prior | None,
    last: int,
) -> str:
    """Return the expectation for the trial: *expected 0.931 ± 0.01 at epoch 27; best of 14*."""
    if prior is None:
        return BY_RUNGS
    ends = dict[str, tuple[float, float]]()
    for name, curve in curves.items():
        if all(map(math.isfinite, curve)):
            coming = forecasts(curve, prior, last)
            ends[name] = (coming[-1].mean, coming[-1].deviation) if coming else (curve[-1], 0.0)
    if trial not in ends:
        return BY_RUNGS
    mean, deviation = ends[trial]
    better = sum(other > mean for other, _ in ends.values())
    among = f"number {better + 1}" if better else "best"
    value = f"{number(spec.sign * mean)} ± {number(deviation, 2)}"
    return f"expected {value} at epoch {last}; {among} of {len(ends)}"
