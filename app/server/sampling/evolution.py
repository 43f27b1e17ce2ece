"""Regularised evolution: a child of a good trial, one parameter changed; the oldest trials die.

E. Real, A. Aggarwal, Y. Huang, Q. V. Le, Regularized Evolution for Image Classifier Architecture
Search, AAAI 2019, algorithm 1. The population are the newest ``population_size`` trials with a
result. ``sample_size`` of them are taken at random, each time from all of them; the best of these
is the parent. Its child has one parameter changed, each with the same chance. So a trial dies by
age and not by rank, and what is good must be found good again to stay.

With ``prefix_bias`` children favour the prefix of their parent, the epochs that both have in
common. With this chance the parameter is one that changes by ``Steps``, and of all its pieces each
is changed with a chance in proportion to the epoch where it enters. The child then differs from
there on. It takes the epochs before over, weights included, where trials share random numbers.

Theory of operation. A child is a pure function of the study's seed, its number and the results
that are there when it is asked for. So nothing is kept between asks: a scheduler that was killed
proposes what the old one would have. Trials run in parallel, so age is by number and not by the
time of the result, and a child may be asked for before the whole population has results; then it
descends from those that have.

A choice changes to another one of its candidates, a number to another one in its range, drawn as
it is drawn at random. A parameter that was not there and is there in the child, because the one
that it depends on was changed, is drawn at random; one that is not there any more is left out. Of
infeasible trials the one that exceeds its bounds by less is better, and any feasible one is better.
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
#: The number of draws for a number that differs from the current one.
_ATTEMPTS = 100


def evolved(
    spec: StudySpec,
    number: int,
    shown: Sequence[FrozenTrial],
    sampled: Mapping[str, Scalar],
    dists: Mapping[str, BaseDistribution],
) -> dict[str, Scalar]:
    """Return the configuration of trial ``number``, with values for inactive parameters too.

    ``shown`` are the trials so far, ``sampled`` a random configuration, which is the answer while
    the population is not complete.
    """
    options: dict[str, Any] = json.loads(spec.sampler_options)
    size = options.get("population_size", POPULATION)
    ready = [trial for trial in shown if trial.state is OptunaState.COMPLETE]
    if number + len(spec.observations) < size or not ready:
        return dict(sampled)
    chance = Random(f"{spec.seed} evolution {number}")  # noqa: S311 (no secret)
    population = sorted(ready, key=lambda trial: trial.number)[-size:]
    # One alone would be no tournament.
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
    """Return which of the ``free`` parameters is changed in ``child``."""
    later = [later_piece(name, child) for name in free]
    common = [0 if piece is None else piece[1] for piece in later]
    if bias and any(common) and chance.random() < bias:
        return chance.choices(free, weights=common)[0]
    return chance.choice(free)


def _rank(trial: FrozenTrial, sign: float) -> tuple[float, float]:
    """Return a sort key, least for the best trial: excess over its bounds, then loss."""
    excess = sum(max(0.0, each) for each in trial.system_attrs.get("constraints", ()))
    return excess, sign * trial.values[0]


def _other(dist: BaseDistribution, value: Scalar, chance: Random) -> Scalar:
    """Return a value of ``dist`` that is not ``value``."""
    if isinstance(dist, CategoricalDistribution):
        return chance.choice([each for each in dist.choices if each != value])
    draws = (at(dist, chance.random()) for _ in range(_ATTEMPTS))
    return next((each for each in draws if each != value), value)
