"""Regularised evolution: a new trial is a good one with one parameter changed; the oldest die.

E. Real, A. Aggarwal, Y. Huang, Q. V. Le, Regularized Evolution for Image Classifier Architecture
Search, AAAI 2019, algorithm 1. The population consists of the newest ``population_size`` trials
with a result. ``sample_size`` of them are drawn at random, with replacement; the best of these is
the parent. One parameter of the child is changed, and each parameter has the same chance. So a
trial dies by age and not by rank, and a good configuration survives only if its descendants are
good, too.

With ``prefix_bias`` a child tends to share a prefix with its parent: the first epochs, in which
both have the same parameters. With probability ``prefix_bias`` the changed parameter is a piece of
a ``Steps`` parameter, chosen with a probability in proportion to the epoch where the piece begins.
The child then differs from that epoch on. If trials share random numbers, the child takes over the
epochs before, weights included.

Theory of operation. A child is a pure function of the study's seed, the child's number and the
results so far. So nothing is kept between asks: a scheduler that is started after a crash proposes
what the old one would have. Trials run in parallel, so age goes by number and not by the time of
the result. A child may be asked for before the whole population has results; then it descends from
the trials that have results.

A categorical value changes to another candidate, a number to another one that is drawn at random
from its range. If the change activates a parameter that depends on the changed one, a value for it
is drawn at random; a parameter that becomes inactive is left out. Any feasible trial is better than
an infeasible one; of two infeasible trials, the one that exceeds its bounds by less is better.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState as OptunaState

from ....base.pieces import later_piece
from .quasi_random import at

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from ....scheduler.model.study import Scalar, StudySpec

#: The sizes of the population, and of a tournament in a population of that size, as in the paper.
POPULATION, PER_SAMPLE = 100, 4
#: The most draws of a number to get one that differs from the current one.
_ATTEMPTS = 100


def evolved(
    spec: StudySpec,
    number: int,
    shown: Sequence[FrozenTrial],
    sampled: Mapping[str, Scalar],
    dists: Mapping[str, BaseDistribution],
) -> dict[str, Scalar]:
    """Return the configuration of trial ``number``, with values for inactive parameters too.

    ``shown`` are the trials so far. ``sampled`` is a random configuration, which is returned until
    the population is complete.
    """
    options: dict[str, Any] = json.loads(spec.sampler_options)
    size = options.get("population_size", POPULATION)
    ready = [trial for trial in shown if trial.state is OptunaState.COMPLETE]
    if number + len(spec.observations) < size or not ready:
        return dict(sampled)
    chance = Random(f"{spec.seed} evolution {number}")  # noqa: S311 (no secret)
    population = sorted(ready, key=lambda trial: trial.number)[-size:]
    # A tournament needs at least two trials.
    tournament = chance.choices(
        population, k=options.get("sample_size", max(2, size // PER_SAMPLE))
    )
    sign = 1.0 if spec.direction == "minimize" else -1.0
    parent = min(tournament, key=lambda trial: _rank(trial, sign)).params
    child = {name: parent.get(name, value) for name, value in sampled.items()}
    free = [name for name in child if name in parent and not dists[name].single()]
    if free:
        changed = _changed(free, child, options.get("prefix_bias", 0), chance)
        child[changed] = _other(dists[changed], parent[changed], chance)
    return child


def _changed(free: Sequence[str], child: Mapping[str, Scalar], bias: float, chance: Random) -> str:
    """Return the name of the parameter, one of ``free``, to change in ``child``."""
    later = [later_piece(name, child) for name in free]
    common = [0 if piece is None else piece[1] for piece in later]
    if bias and any(common) and chance.random() < bias:
        return chance.choices(free, weights=common)[0]
    return chance.choice(free)


def _rank(trial: FrozenTrial, sign: float) -> tuple[float, float]:
    """Return a trial's sort key, lowest for the best: the excess over its bounds, then the loss."""
    excess = sum(max(0.0, each) for each in trial.system_attrs.get("constraints", ()))
    return excess, sign * trial.values[0]


def _other(dist: BaseDistribution, value: Scalar, chance: Random) -> Scalar:
    """Return a value of ``dist`` that is not ``value``."""
    if isinstance(dist, CategoricalDistribution):
        return chance.choice([each for each in dist.choices if each != value])
    draws = (at(dist, chance.random()) for _ in range(_ATTEMPTS))
    return next((each for each in draws if each != value), value)
