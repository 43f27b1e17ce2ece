"""The configurations of a study with replicates: R trials in a row have equal parameters.

Theory of operation. Trial n is replicate n mod R of configuration n div R, so both follow from the
trial's number. Every new trial takes the next number. If the number starts a configuration, the
sampler is asked for a new one; else the trial gets the configuration of the trial before it. So a
strategy may ask for any number of trials at a time, and needs to know nothing of replicates.
Samplers know nothing of replicates either: they see one trial per configuration, with the means
over its replicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..model.study import StudySpec
from ..model.trial import Trial, TrialState

_GONE = (TrialState.FAILED, TrialState.CANCELLED)


def configurations(spec: StudySpec, trials: int) -> int:
    """Return the number of configurations of the first ``trials`` trials."""
    return -(-trials // spec.replicates)


def new_configurations(spec: StudySpec, known: int, trials: int) -> int:
    """Return the number of configurations that ``trials`` more trials begin, after ``known``."""
    return configurations(spec, known + trials) - configurations(spec, known)


def as_sampled(spec: StudySpec, trials: Sequence[Trial]) -> list[Trial]:
    """Return a study's ``trials`` (by number) as its sampler sees them: one per configuration.

    The value after an epoch is the mean over the replicates that have reached the epoch. The final
    value is the mean over the completed replicates, or over all if none is completed. A constraint
    is the worst of any replicate. Failed and cancelled replicates are left out. If all replicates
    failed or were cancelled, the first one stands for the configuration.
    """
    size = spec.replicates
    if size == 1:
        return list(trials)
    groups = (trials[first : first + size] for first in range(0, len(trials), size))
    return [_joined(number, group) for number, group in enumerate(groups)]


def _joined(number: int, replicates: Sequence[Trial]) -> Trial:
    present = [each for each in replicates if each.state not in _GONE]
    if not present:
        return replace(replicates[0], number=number)
    complete = [each for each in present if each.state is TrialState.COMPLETED]
    epochs = sorted({epoch for each in present for epoch in each.values})
    excess: dict[str, float] = {}
    for name, value in (pair for each in present for pair in each.constraints):
        excess[name] = max(value, excess.get(name, value))
    return replace(
        (complete or present)[0],
        id=replicates[0].id,
        number=number,
        value=_mean(each.value for each in complete or present if each.value is not None),
        values={
            epoch: mean
            for epoch in epochs
            if (mean := _mean(each.values[epoch] for each in present if epoch in each.values))
            is not None
        },
        constraints=tuple(excess.items()),
    )


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def best_replicates(replicates: int, sign: float, values: Mapping[int, float]) -> list[int]:
    """Return the numbers of the best configuration's trials that have a value.

    ``values`` are the values by the trials' numbers. Only configurations with the highest number of
    values count, so that one lucky result does not beat two good ones. The best of them has the
    largest sum of values times ``sign``; on a tie, the earliest wins. The result is empty if there
    are no values.

    >>> best_replicates(2, 1.0, {0: 0.9, 2: 0.6, 3: 0.8, 4: 0.5, 5: 0.7})
    [2, 3]
    """
    groups: dict[int, list[int]] = {}
    for number in sorted(values):
        groups.setdefault(number // replicates, []).append(number)
    most = max(map(len, groups.values()), default=0)
    full = [group for group in groups.values() if len(group) == most]
    return max(full, key=lambda group: sign * sum(values[n] for n in group), default=[])
