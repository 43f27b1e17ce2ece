"""Propose configurations with Optuna's samplers and Penstock's own, from the engine's trials.

Theory of operation. The engine's trials are the only record. Caches in this module save time and
change no answer. For every ask, a new Optuna sampler is shown the trials, in the form that
``study_view`` describes. So a host that is rebuilt after a crash gives the same answers as before.
CMA-ES and NSGA-II attach a note of the generation to each trial. The note is part of the answer, is
stored in the ledger, and is shown to the sampler again.

A sampler that learns compares results of equal training: those at the highest rung that has enough
results. CMA-ES and NSGA-II compare at the lowest rung, because only there a whole generation
arrives. ``bohb`` is TPE as in Falkner et al. 2018, section 4.1: with d parameters it uses a model
once there are d + 3 results, and it draws every third configuration at random. How many results
count as good is Optuna's rule, not the 15 % of the paper.

Random numbers. ``random`` and ``qmc`` draw trial number k of a study from (study seed, k), so the
configurations do not depend on how the asks were grouped. ``evolution`` begins with the
configurations of ``random``, and mutates trial k by (study seed, k). The other samplers depend on
the results that have arrived, and are seeded by (study seed, ask index). Parameters drawn while an
objective runs are seeded by (study seed, trial number, name). These parameters are drawn
independently, as Optuna draws the parameters of conditional spaces. Conditional parameters of a
space are also drawn independently. Conditional parameters are always drawn, and inactive parameters
are left out afterwards. So an inactive parameter does not shift the random numbers of other
parameters.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    json_to_distribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
    BaseSampler,
    GPSampler,
    NSGAIISampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState
from threadpoolctl import threadpool_limits

from ....scheduler.model.study import Condition, Params, Scalar, StudySpec
from ....scheduler.model.trial import Trial, TrialState
from ....scheduler.strategies.base import rungs_of
from ...common.ports import Answer
from ...spec.conditions import is_active, without_inactive
from ...spec.space import Space, grid_values
from ..sampling.evolution import evolved
from ..sampling.explore import explored
from ..sampling.quasi_random import quasi_random
from .cmaes import ReplayedCmaEs
from .study_view import StudyView, with_assumed

#: The number of newest trials that a Gaussian process reads. The sampler's time grows with the cube
#: of this number, and the scheduler waits for the sampler. With this number of trials, a
#: configuration takes about a second.
GP_MOST = 100
#: The samplers that attach a note to each trial.
NOTING = ("cmaes", "nsga2")
#: The samplers that read only trials with values of all jointly drawn parameters. After an edit of
#: the space, some trials lack values.
_JOINT = ("cmaes", "gp", "nsga2")


class SamplerHost:
    """The scheduler's own samplers, for any number of studies.

    The host answers the engine's asks for configurations and the questions of define-by-run
    objectives.
    """

    def __init__(self) -> None:
        # One view per study for asks, and in define-by-run one for each (name, range) drawn. The
        # views of an edited study are made again.
        self._views: dict[str, tuple[object, dict[tuple[str, str] | None, StudyView]]] = {}

    def ask(
        self,
        spec: StudySpec,
        index: int,
        n: int,
        trials: Sequence[Trial],
        enqueued: Sequence[Params] = (),
        *,
        resampled: Sequence[int] = (),
    ) -> Answer:
        """Return up to ``n`` configurations for new trials.

        ``trials`` are all trials of the study so far, and ``index`` counts the study's asks. The
        user's ``enqueued`` configurations come first; parameters that they leave out are drawn. If
        ``resampled`` has numbers of trials, these trials get the new configurations, and ``trials``
        must not contain them.
        """
        fixed: list[dict[str, Scalar]] = [dict(params) for params in enqueued[:n]]
        requested = fixed + [{} for _ in range(n - len(fixed))]
        if spec.space is None and spec.sampler != "nsga2":
            return Answer(tuple(tuple(params.items()) for params in requested), exhausted=False)
        if spec.space is not None and spec.sampler == "grid":
            return _grid(spec, spec.space, requested, trials)
        dists = {name: json_to_distribution(text) for name, text in spec.space or ()}
        view = self._view(spec, None, dists)
        model = _model(spec, len(dists), "ask", index)
        if model is not None or spec.sampler == "evolution":
            _show(spec, view, trials)
        if spec.edits is not None and spec.sampler in _JOINT:
            names = _sampled_jointly(spec, dists).keys()
            view.shown = [each for each in view.shown if names <= each.params.keys()]
        answers = []
        numbers = resampled or range(len(trials), len(trials) + n)
        for number, params in zip(numbers, requested, strict=True):
            sampler = model
            few = (
                spec.edits is not None
                and isinstance(model, NSGAIISampler)
                and _has_few_parents(model, view, number)
            )
            if sampler is None or few or (spec.sampler == "bohb" and number % 3 == 0):
                sampler = _random(spec, "trial", number)
            if spec.space is None:  # the objective draws while it runs; note the generation now
                assert isinstance(model, NSGAIISampler)
                model.get_trial_generation(view.study(), view.running(number))
                answers.append(tuple(params.items()))
                continue
            # All parameters are drawn, even if the user fixed some. So a fixed value does not shift
            # the random numbers of the others.
            if spec.sampler == "qmc":
                sampled = quasi_random(dists, spec.seed, number) | params
            else:
                sampled = _draw(spec, sampler, view, view.running(number))
                if spec.sampler == "evolution":
                    sampled = evolved(spec, number, view.shown, sampled, dists)
                sampled |= params
            sampled = without_inactive(sampled, spec.conditions)
            if model is not None:
                view.shown.append(view.running(number, sampled))
            answers.append(tuple(sampled.items()))
        notes = [view.notes_of(number) for number in numbers]
        return Answer(tuple(answers), False, tuple(notes) if spec.sampler in NOTING else ())

    def explore(self, spec: StudySpec, number: int, params: Params) -> Params:
        """Return the configuration of trial ``number``, a fork of a trial with ``params`` (PBT)."""
        dists = {name: json_to_distribution(text) for name, text in spec.space or ()}
        view = StudyView(spec, dists)
        sampled = _draw(spec, _random(spec, "trial", number), view, view.running(number))
        return explored(spec, number, params, sampled)

    def suggest(
        self, spec: StudySpec, trial: Trial, name: str, distribution: str, trials: Sequence[Trial]
    ) -> Scalar:
        """Draw a value of the parameter ``name`` for a running define-by-run ``trial``.

        ``trials`` are all trials so far. Of the other trials only the values of this parameter are
        used, and only those that lie in ``distribution``.
        """
        dists = {name: json_to_distribution(distribution)}
        key = (name, distribution)
        view = self._view(spec, key, dists)
        if spec.sampler == "qmc":
            return quasi_random(dists, _number(spec, name), trial.number)[name]
        sampler = _model(spec, 1, trial.number, name)
        if sampler is not None:
            _show(spec, view, [other for other in trials if other.id != trial.id])
        if sampler is None or (spec.sampler == "nsga2" and not _ancestors(view, name, trial)):
            sampler = _random(spec, trial.number, name)
        return _draw(spec, sampler, view, view.running(trial.number, notes=trial.notes))[name]

    def _view(
        self, spec: StudySpec, key: tuple[str, str] | None, dists: dict[str, BaseDistribution]
    ) -> StudyView:
        now = spec.space, spec.strategy
        made_for, views = self._views.get(spec.id, (now, {}))
        if made_for != now:
            views = {}
        self._views[spec.id] = now, views
        return views.setdefault(key, StudyView(spec, dists))

    def forget(self, study: str) -> None:
        """Drop the cache of a study that is over."""
        self._views.pop(study, None)


def _grid(
    spec: StudySpec,
    space: Space,
    requested: Sequence[Mapping[str, Scalar]],
    trials: Sequence[Trial],
) -> Answer:
    """Return the first points of the grid, in the order of the space, that no trial has tried.

    The answer is exhausted if no other point is left.
    """
    points_tried = {
        with_assumed(spec, trial.params)
        for trial in trials
        if not trial.branched and (trial.begun or trial.state is not TrialState.CANCELLED)
    }
    whole = partial(_points, space, spec.conditions)
    rest = (point for point in whole({}) if point not in points_tried)
    answers: list[Params] = []
    for fixed in requested:
        if fixed:
            # A value that the user fixed narrows the grid, even if it is not on the grid. A
            # configuration that the user enqueues again is run again.
            first = next(whole(fixed))
            point = next((p for p in whole(fixed) if p not in points_tried), first)
        else:
            next_point = next(rest, None)
            if next_point is None:
                return Answer(tuple(answers), exhausted=True)
            point = next_point
        points_tried.add(point)
        answers.append(point)
    return Answer(tuple(answers), next(rest, None) is None)


def _points(
    space: Space, conditions: Sequence[Condition], fixed: Mapping[str, Scalar]
) -> Iterator[Params]:
    """Yield the grid's points one at a time. The last parameter varies fastest.

    An axis may be long, so no list of all points is made. A parameter in ``fixed`` has only that
    value.
    """
    axes = [
        (name, [fixed[name]] if name in fixed else grid_values(name, text)) for name, text in space
    ]

    def below(depth: int, above: dict[str, Scalar]) -> Iterator[Params]:
        if depth == len(axes):
            yield tuple(above.items())
            return
        name, axis = axes[depth]
        if not is_active(name, conditions, above):
            yield from below(depth + 1, above)
            return
        for value in axis:
            yield from below(depth + 1, {**above, name: value})

    return below(0, {})


def _number(spec: StudySpec, *seed: object) -> int:
    """Return a 32-bit seed that depends on the study's seed and on the values in ``seed``."""
    digest = hashlib.sha256(json.dumps([spec.seed, *seed]).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _random(spec: StudySpec, *seed: object) -> RandomSampler:
    return RandomSampler(seed=_number(spec, *seed))


def _model(spec: StudySpec, dimensions: int, *seed: object) -> BaseSampler | None:
    """Return the study's sampler if the sampler learns from results, else None."""
    number, options = _number(spec, *seed), json.loads(spec.sampler_options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        match spec.sampler:
            case "tpe":
                # Two options are explicit because their defaults differ between Optuna's releases.
                return TPESampler(
                    **{"multivariate": True, "constant_liar": True} | options, seed=number
                )
            case "bohb":
                least = dimensions + 3
                return TPESampler(multivariate=True, n_startup_trials=least, seed=number)
            case "gp":
                return GPSampler(**options, seed=number)
            case "cmaes":
                return ReplayedCmaEs(**options, seed=number, warn_independent_sampling=False)
            case "nsga2":
                return NSGAIISampler(**options, seed=number)
    return None


def _show(spec: StudySpec, view: StudyView, trials: Sequence[Trial]) -> None:
    """Have ``view`` show the results that the study's sampler may compare.

    Under a strategy with rungs these are the results of one rung.
    """
    options: dict[str, int] = json.loads(spec.sampler_options)
    least = options.get("n_startup_trials", 10)
    if spec.sampler == "bohb":
        least = len(view.dists) + 3
    observations = spec.observations
    if spec.sampler in NOTING and rungs_of(spec.strategy):
        view.show(trials, None, observations)
        return
    if spec.sampler == "gp":
        trials = trials[-GP_MOST:]
        observations = observations[-(GP_MOST - len(trials)) :] if len(trials) < GP_MOST else ()
    view.show(trials, max(1, least), observations)


def _ancestors(view: StudyView, name: str, trial: Trial) -> bool:
    """Reduce the view to complete trials of earlier generations that have the parameter ``name``.

    Returns True if at least two trials are left, as NSGA-II's crossover needs.
    """
    key = NSGAIISampler._get_generation_key()
    generation = json.loads(trial.notes or "{}").get(key, 0)
    view.shown = [
        other
        for other in view.shown
        if name in other.params
        and other.system_attrs.get(key, generation) < generation
        and other.state is OptunaState.COMPLETE
    ]
    return len(view.shown) > 1


def _has_few_parents(model: NSGAIISampler, view: StudyView, number: int) -> bool:
    """Return True if too few parents have all parameters of the space for a crossover.

    Parents can be too few after an edit of the space.
    """
    study = view.study()
    generation = model.get_trial_generation(study, view.running(number))
    return generation > 0 and len(model.get_parent_population(study, generation)) < 2


def _draw(
    spec: StudySpec, sampler: BaseSampler, view: StudyView, trial: FrozenTrial
) -> dict[str, Scalar]:
    """Draw one configuration.

    The parameters are drawn jointly as far as the sampler supports it, and independently otherwise.
    """
    joint = json.loads(spec.sampler_options).get("multivariate", True)
    study = view.study()
    free = {name: dist for name, dist in view.dists.items() if not dist.single()}
    together = _sampled_jointly(spec, free)
    # One thread: the scheduler's machine usually trains as well, and on busy cores a GP takes ten
    # times as long with threads that wait for each other.
    with threadpool_limits(1) if spec.sampler == "gp" else nullcontext():
        sampled = sampler.sample_relative(study, trial, together) if joint and together else {}
    for name, dist in free.items():
        if name not in sampled:
            sampled[name] = sampler.sample_independent(study, trial, name, dist)
    return {
        name: _plain(dist, sampled[name]) if name in free else _only(dist)
        for name, dist in view.dists.items()
    }


def _sampled_jointly(
    spec: StudySpec, dists: Mapping[str, BaseDistribution]
) -> dict[str, BaseDistribution]:
    """Return the parameters that the study's sampler may draw jointly, with their distributions."""
    left_out = {each.name for each in spec.conditions}
    return {
        name: dist
        for name, dist in dists.items()
        if name not in left_out
        and not dist.single()
        and not (spec.sampler == "cmaes" and isinstance(dist, CategoricalDistribution))
    }


def _only(dist: BaseDistribution) -> Scalar:
    if isinstance(dist, CategoricalDistribution):
        return dist.choices[0]
    assert isinstance(dist, FloatDistribution | IntDistribution)
    return dist.low


def _plain(dist: BaseDistribution, value: Any) -> Scalar:
    """Return ``value`` as a JSON scalar. A NumPy number becomes a Python number."""
    if isinstance(dist, CategoricalDistribution):
        return dist.choices[dist.choices.index(value)]
    return int(value) if isinstance(dist, IntDistribution) else float(value)
