"""Regularized evolution: a new trial copies a good trial with one parameter changed.

E. Real, A. Aggarwal, Y. Huang, Q. V. Le, Regularized Evolution for Image Classifier Architecture
Search, AAAI 2019, algorithm 1. The population consists of the newest ``population_size`` trials
with a result. ``sample_size`` trials of the population are drawn at random, with replacement. The
best of these trials is the parent. One parameter of the child is changed, and each parameter has
the same chance. So a trial leaves the population by age and not by rank, and a good configuration
survives only if its descendants are good, too.

With ``prefix_bias`` a child tends to share a prefix with its parent, that is, the first epochs, in
which both have the same parameters. With probability ``prefix_bias`` the changed parameter is a
piece of a ``Steps`` parameter. The piece is chosen with a probability in proportion to the epoch
where the piece begins. The child differs from its parent from that epoch on. If trials share random
numbers, the child takes over the earlier epochs, weights included.

Theory of operation. A child is a pure function of the study's seed, the child's number and the
results so far. So nothing is stored between asks: a scheduler that starts after a crash proposes
the same child. Trials run in parallel, so age is measured by a trial's number and not by the time
of its result. A child may be requested before the whole population has results; the parent is then
chosen from the trials that have results.

A categorical value changes to another choice, and a number changes to another number that is drawn
at random from its range. If the change activates a parameter that depends on the changed parameter,
the activated parameter's value is drawn at random. A parameter that becomes inactive is left out.
Any feasible trial is better than an infeasible trial. Of two infeasible trials, the trial that
exceeds its bounds by less is better.
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

#: The default size of the population, and the factor by which a tournament is smaller, as in the
#: paper.
POPULATION, PER_SAMPLE = 100, 4
#: The largest number of draws to get a number that differs from the current number.
_ATTEMPTS = 100


def evolved(
    spec: StudySpec,
    number: int,
    shown: Sequence[FrozenTrial],
    sampled: Mapping[str, Scalar],
    dists: Mapping[str, BaseDistribution],
) -> dict[str, Scalar]:
    """Return the configuration of trial ``number``, including values of inactive parameters.

    ``shown`` are the trials so far. ``sampled`` is a random configuration. The random configuration
    is returned unchanged until the population is complete.
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
    """Return a trial's sort key, which is lowest for the best trial.

    The key is the excess over the trial's bounds, then the loss.
    """
    excess = sum(max(0.0, each) for each in trial.system_attrs.get("constraints", ()))
    return excess, sign * trial.values[0]


def _other(dist: BaseDistribution, value: Scalar, chance: Random) -> Scalar:
    """Return a value of ``dist`` that differs from ``value`` if the draws find one."""
    if isinstance(dist, CategoricalDistribution):
        return chance.choice([each for each in dist.choices if each != value])
    draws = (at(dist, chance.random()) for _ in range(_ATTEMPTS))
    return next((each for each in draws if each != value), value)
