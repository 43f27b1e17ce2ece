"""Three rules of tuning applied to epochs measured by hand: PipeTune's V1, V2 and its own.

All of them train one trial at a time on all cores. Trials' accuracies are those of a live study and
do not depend on the rule; the trial that a rule ends with does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from .measure import Times

DEFAULT = "the default"
SEEDS = 20


@dataclass(frozen=True)
class Outcome:
    """A study under a rule: its seconds; accuracy and training seconds of its best trial."""

    seconds: float
    accuracy: float
    training_s: float


def v1(times: Times, accuracies: Sequence[Sequence[float]]) -> Outcome:
    """Apply V1: every trial under the default."""
    return _outcome([[times.seconds(DEFAULT)] * len(each) for each in accuracies], accuracies)


def v2(times: Times, accuracies: Sequence[Sequence[float]]) -> Outcome:
    """Apply V2: a configuration is a hyperparameter, and accuracy over duration is maximised."""
    usual = sorted(config for config in times.ratios if "autocast" not in config)
    found = []
    for seed in range(SEEDS):
        chance = Random(seed)
        drawn = [times.seconds(chance.choice(usual)) for _ in accuracies]
        epochs = [[each] * len(of) for each, of in zip(drawn, accuracies, strict=True)]
        found.append(_outcome(epochs, accuracies, by_speed=True))
    return Outcome(
        fmean(each.seconds for each in found),
        fmean(each.accuracy for each in found),
        fmean(each.training_s for each in found),
    )


def pipetune(times: Times, accuracies: Sequence[Sequence[float]]) -> Outcome:
    """Apply PipeTune: a first epoch on the default, each other one for an epoch, then the best.

    All trials are of one cluster. Later ones take the best of the first that tried all.
    """
    usual = [each for each in times.ratios if "autocast" not in each and each != DEFAULT]
    known = False
    epochs = []
    for of in accuracies:
        plan = [DEFAULT, *([] if known else usual)]
        plan += [times.best] * max(0, len(of) - len(plan))
        known = known or len(of) > len(usual) + 1
        epochs.append([times.seconds(config) for config in plan[: len(of)]])
    return _outcome(epochs, accuracies)


def oracle(times: Times, accuracies: Sequence[Sequence[float]]) -> Outcome:
    """Apply what only an oracle knows: every trial under the fastest configuration."""
    return _outcome([[times.seconds(times.best)] * len(each) for each in accuracies], accuracies)


RULES = {"v1": v1, "v2": v2, "pipetune": pipetune, "oracle": oracle}


def _outcome(
    epochs: Sequence[Sequence[float]],
    accuracies: Sequence[Sequence[float]],
    *,
    by_speed: bool = False,
) -> Outcome:
    spent = [sum(each) for each in epochs]
    reached = [max(each) for each in accuracies]

    def worth(trial: int) -> float:
        return reached[trial] / (spent[trial] if by_speed else 1.0)

    best = max(range(len(spent)), key=worth)
    return Outcome(sum(spent), reached[best], spent[best])


def responses(arrivals: Sequence[float], service: Sequence[float]) -> list[float]:
    """Seconds from each job's arrival to its end, first come first served, one at a time."""
    free, found = 0.0, []
    for at, seconds in zip(arrivals, service, strict=True):
        free = max(free, at) + seconds
        found.append(free - at)
    return found
