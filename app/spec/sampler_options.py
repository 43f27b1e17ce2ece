"""Check samplers, their options, the spaces they can draw from, and Optuna's sampler objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...base.errors import UsageError
from ...base.pieces import later_piece
from ...scheduler.model.study import Condition
from ..common.validation import finite, flag, one_of, whole
from .space import Categorical, Space, grid_size, parameter, parse_space

#: The sampler's name if an Optuna object samples in the objective's process.
LOCAL = "optuna"
#: The sampler's name if the scheduler samples with the user's object, in a separate process.
OWN = "own"
SAMPLERS = ("grid", "random", "qmc", "tpe", "bohb", "gp", "cmaes", "nsga2", "evolution")
#: The samplers that have no equivalent class in Optuna.
NOT_OPTUNAS = ("grid", "bohb", "evolution")
#: ``ONE_OBJECTIVE`` contains the samplers that take only one objective. ``UNCONDITIONAL`` contains
#: the samplers that cannot draw from a space with conditions.
ONE_OBJECTIVE = ("bohb", "cmaes", "evolution")
UNCONDITIONAL = ("gp", "cmaes")
#: The samplers that need a space, each with the kind of parameters that the space must have.
_WITH_SPACE = {"grid": "choices", "cmaes": "Float or Int", "evolution": "parameters"}


_SHARE = partial(finite, allowed="0 to 1", low=0, high=1)
#: The options of each sampler, each with the function that checks its value.
_OPTIONS: dict[str, dict[str, Callable[[str, Any], object]]] = {
    "tpe": {
        "n_startup_trials": partial(whole, low=0),
        "n_ei_candidates": partial(whole, low=1),
        "multivariate": flag,
        "constant_liar": flag,
    },
    "gp": {"n_startup_trials": partial(whole, low=1), "deterministic_objective": flag},
    "cmaes": {
        "n_startup_trials": partial(whole, low=1),
        "popsize": partial(whole, low=2),
        "use_separable_cma": flag,
        "with_margin": flag,
        "lr_adapt": flag,
    },
    "nsga2": {
        "population_size": partial(whole, low=2),
        "mutation_prob": _SHARE,
        "crossover_prob": _SHARE,
        "swapping_prob": _SHARE,
    },
    "evolution": {
        "population_size": partial(whole, low=2),
        "sample_size": partial(whole, low=1),
        "prefix_bias": _SHARE,
    },
}
#: Options that choose a variant of CMA-ES. At most one of these options may be true.
_FORMS = ("use_separable_cma", "with_margin", "lr_adapt")


@dataclass(frozen=True, slots=True, init=False)
class Sampler:
    """A sampler with options, such as ``penstock.Sampler("tpe", multivariate=True)``.

    Pass the sampler as ``create_study(sampler=...)``. ``kind`` is ``grid``, ``random``, ``qmc``,
    ``tpe``, ``bohb``, ``gp``, ``cmaes``, ``nsga2`` or ``evolution``, or an Optuna sampler object of
    one of these kinds. Pass any other Optuna sampler directly to ``create_study``. ``options`` are
    the options in the guide's list, with the meaning that they have in Optuna. These options
    override the options of an Optuna object. Raises UsageError, naming the sampler or the option
    that is refused.
    """

    #: One of ``SAMPLERS``.
    name: str
    #: The sampler's options, as JSON.
    options: str
    #: The space of an Optuna ``GridSampler``. It is None for all other samplers.
    space: Space | None

    def __init__(self, kind: Any, /, **options: Any) -> None:
        name, own, space = (kind, {}, None) if isinstance(kind, str) else _from_optuna(kind)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", _options_json(name, own | options))
        object.__setattr__(self, "space", space)


def check_prefixes(options: str, seeding: str) -> None:
    """Raise UsageError for a ``prefix_bias`` above 0 if trials have no prefixes in common.

    A prefix is the first epochs of several trials with equal bits. Only ``seeding="shared"`` allows
    prefixes. ``options`` is the JSON of the sampler's options.
    """
    bias = json.loads(options).get("prefix_bias", 0)
    if bias and seeding != "shared":
        allowed = "0 with seeding='trial': no two trials have epochs in common; seeding='shared'"
        raise UsageError.refuse("sampler.prefix_bias", bias, allowed)


def is_optuna_sampler(given: object) -> bool:
    """Return True if ``given`` is an object with the methods of an Optuna sampler."""
    methods = ("infer_relative_search_space", "sample_relative", "sample_independent")
    is_object = not isinstance(given, type)
    return is_object and all(callable(getattr(given, name, None)) for name in methods)


def scheduler_sampler(given: Any) -> tuple[str, str, Space | None]:
    """Return the name, options (JSON) and space of the sampler that the scheduler would use.

    The name is ``LOCAL`` if the scheduler has no equivalent sampler, so that only the object
    ``given`` can sample. Raises UsageError if ``given`` is not a sampler.
    """
    if not isinstance(given, Sampler):
        try:
            given = Sampler("tpe" if given is None else given)
        except UsageError:
            if not is_optuna_sampler(given):
                raise
            return LOCAL, "{}", None
    return given.name, given.options, given.space


def own_options(sampler: object) -> str:
    """Return the options (JSON) to store for a user's sampler object that the scheduler uses.

    These are ``sampler``, the name of the object's class, and ``generations``, which is true if the
    sampler compares whole generations of trials.
    """
    bases = {base.__name__ for base in type(sampler).__mro__}
    stored = {
        "sampler": type(sampler).__name__,
        "generations": bool(bases & {"CmaEsSampler", "BaseGASampler"}),
    }
    return json.dumps(stored, sort_keys=True)


def _options_json(sampler: str, options: Mapping[str, Any]) -> str:
    """Return a sampler's checked options as JSON.

    Raises UsageError, naming the sampler or the option that is refused.
    """
    one_of("sampler", sampler, SAMPLERS)
    forms = _OPTIONS.get(sampler, {})
    for name, value in options.items():
        field = f"sampler.{name}"
        if name not in forms:
            allowed = f"a name of {', '.join(forms)}" if forms else f"none with {sampler!r}"
            raise UsageError.refuse(field, value, allowed)
        forms[name](field, value)
    if sampler == "evolution":
        tournament, population = options.get("sample_size", 1), options.get("population_size", 100)
        if tournament > population:
            allowed = f"1 to {population}, the population_size"
            raise UsageError.refuse("sampler.sample_size", tournament, allowed)
    forms_chosen = [name for name in _FORMS if options.get(name)]
    if len(forms_chosen) > 1:
        raise UsageError.refuse("sampler", ", ".join(forms_chosen), "one of these at a time")
    return json.dumps(dict(options), sort_keys=True)


def _from_optuna(sampler: Any) -> tuple[str, dict[str, Any], Space | None]:
    """Return the name, the options and the space of an Optuna sampler object.

    The seed of the object is ignored, since the study has its own seed. Raises UsageError if the
    object has no equivalent in the scheduler.
    """
    is_optunas = type(sampler).__module__.startswith("optuna.")
    kind = type(sampler).__name__ if is_optunas else ""  # a user's class may have any name
    attributes = vars(sampler) if is_optunas else {}
    parts: tuple[str, dict[str, Any], Space | None] | None = None
    if kind == "RandomSampler":
        parts = "random", {}, None
    elif kind == "GridSampler" and "_search_space" in attributes:
        parts = "grid", {}, parse_space(attributes["_search_space"])
    elif kind == "QMCSampler" and attributes.get("_qmc_type") == "sobol":
        parts = "qmc", {}, None
    elif kind == "TPESampler" and _plain_tpe(attributes):
        parts = "tpe", _read(attributes, "tpe"), None
    elif kind == "GPSampler" and attributes.get("_constraints_func") is None:
        attributes = attributes | {"_deterministic_objective": attributes["_deterministic"]}
        parts = "gp", _read(attributes, "gp"), None
    elif kind == "CmaEsSampler" and _plain_cmaes(attributes):
        parts = "cmaes", _read(attributes, "cmaes"), None
    elif kind == "NSGAIISampler" and _plain_nsga2(attributes):
        children = vars(attributes["_child_generation_strategy"])
        parts = "nsga2", _read(attributes | children, "nsga2"), None
    if parts is not None:
        return parts
    allowed = (
        f"{', '.join(SAMPLERS)}, or a RandomSampler, GridSampler, QMCSampler (sobol), or a"
        " TPESampler, GPSampler, CmaEsSampler or NSGAIISampler with numbers for options: without"
        " functions or objects of your own"
    )
    raise UsageError.refuse("sampler", sampler, allowed)


def check_space(
    sampler: str, options: str, space: Space | None, conditions: tuple[Condition, ...]
) -> None:
    """Raise UsageError if the sampler or one of its options does not fit ``space``."""
    if space is None and sampler in _WITH_SPACE:
        kind = _WITH_SPACE[sampler]
        allowed = f"a mapping of names to {kind}, given to optimize(), with {sampler!r}"
        raise UsageError.refuse("space", None, allowed)
    if conditions and sampler in UNCONDITIONAL:
        able = ", ".join(name for name in SAMPLERS if name not in UNCONDITIONAL)
        allowed = f"{able} in a space with conditions"
        raise UsageError.refuse("sampler", sampler, allowed)
    if space is not None and sampler == "grid":
        grid_size(space, conditions)
    if space is not None and sampler == "cmaes":
        kinds = [parameter(text) for _, text in space]
        if all(isinstance(kind, Categorical) for kind in kinds):
            raise UsageError.refuse("sampler", sampler, "another where no parameter is a number")
    bias = json.loads(options).get("prefix_bias", 0)
    if bias and space is not None and not any(later_piece(n, dict(space)) for n, _ in space):
        allowed = "0, because no parameter of the space is a Steps"
        raise UsageError.refuse("sampler.prefix_bias", bias, allowed)


def _read(given: Mapping[str, Any], sampler: str) -> dict[str, Any]:
    read = {name: given.get(f"_{name}") for name in _OPTIONS[sampler]}
    return {name: value for name, value in read.items() if value is not None}


def _plain_tpe(given: Mapping[str, Any]) -> bool:
    """Return True if all options of the sampler can be stored.

    The user's own functions cannot be stored. ``given`` contains the attributes of an Optuna
    ``TPESampler``.
    """
    weights = getattr(given.get("_parzen_estimator_parameters"), "weights", None)
    functions = (("default_gamma", given.get("_gamma")), ("default_weights", weights))
    return (
        not given.get("_group")
        and given.get("_constraints_func") is None
        and all(code is None or code.__name__ == name for name, code in functions)
    )


def _plain_cmaes(given: Mapping[str, Any]) -> bool:
    """Return True if all options of the sampler can be stored.

    Functions and objects cannot be stored. ``given`` contains the attributes of an Optuna
    ``CmaEsSampler``.
    """
    own = type(given.get("_independent_sampler")).__name__ != "RandomSampler"
    objects = ("_x0", "_sigma0", "_source_trials", "_consider_pruned_trials")
    return not own and not any(given.get(name) for name in objects)


def _plain_nsga2(given: Mapping[str, Any]) -> bool:
    """Return True if crossover, mutation and selection are Optuna's defaults.

    ``given`` contains the attributes of an Optuna ``NSGAIISampler``.
    """
    parts = {
        "_elite_population_selection_strategy": "NSGAIIElitePopulationSelectionStrategy",
        "_child_generation_strategy": "NSGAIIChildGenerationStrategy",
        "_after_trial_strategy": "NSGAIIAfterTrialStrategy",
    }
    plain = all(type(given.get(part)).__name__ == kind for part, kind in parts.items())
    children = vars(given["_child_generation_strategy"]) if plain else {}
    return (
        plain
        and given.get("_constraints_func") is None
        and type(children.get("_crossover")).__name__ == "UniformCrossover"
        and children.get("_mutation") is None
    )
