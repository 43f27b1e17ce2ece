"""Build a ``StudySpec`` from a user's arguments, and check the arguments before anything starts."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...base.errors import UsageError
from ...profiling.knobs.knobs import check_exact
from ...scheduler.model.study import (
    FUSE,
    SEEDING,
    Code,
    Condition,
    Objective,
    StrategySpec,
    StudySpec,
)
from ...tasks.contracts.code import Reference, refer, with_imports, working_folder
from ..common.validation import one_of, whole
from ..extensions import FIELDS, check_extended, checked, names
from .amounts import ENERGY_ALLOWED, ENERGY_FIELD
from .conditions import parse_conditions
from .contracts import (
    NAMES,
    check_contract,
    check_environment,
    check_replicated,
    check_replicates,
    contract_of,
)
from .objectives import check_strategy, parse_constraints, parse_objectives
from .options import Limits, Resources, Share, SystemTuning, settled, stored
from .plan import StudyPlan
from .sampler_options import (
    LOCAL,
    ONE_OBJECTIVE,
    OWN,
    SAMPLERS,
    check_prefixes,
    check_space,
    is_optuna_sampler,
    own_options,
    scheduler_sampler,
)
from .space import Categorical, Space, grid_size, parameter, parse_space
from .steps import expanded

#: The names of scripts that run notebooks. A study is never named after such a script.
_KERNELS = ("ipykernel_launcher", "colab_kernel_launcher")


def make_plan(
    *,
    direction: str | None = None,
    metric: Any = None,
    directions: Any = None,
    constraints: Mapping[str, float] | None = None,
    sampler: Any = None,
    pruner: Any = None,
    strategy: StrategySpec | None = None,
    seed: int = 0,
    seeding: str = "trial",
    replicates: int = 1,
    fuse: str = "auto",
    resources: Resources | None = None,
    limits: Limits | None = None,
    system: str | SystemTuning = "reuse",
    share: Share | None = None,
    environment: str | None = None,
    notify: str | Sequence[str] | None = None,
    on_end: str | Mapping[str, Any] | None = None,
    on_error: str | Mapping[str, Any] | None = None,
) -> StudyPlan:
    """Check the arguments of ``create_study`` and return them as a ``StudyPlan``.

    Raises UsageError, with the field, its value and the allowed range, if an argument is refused.
    """
    metric, direction, further = parse_objectives(direction, metric, directions)
    if strategy is not None and not isinstance(strategy, StrategySpec):
        allowed_strategies = "ASHA(...), FullBudget(...), another strategy of penstock's, or None"
        raise UsageError.refuse("strategy", strategy, allowed_strategies)
    name, options, space = scheduler_sampler(sampler)
    if pruner is not None and strategy is not None:
        allowed = "None, because the strategy decides how long trials run: give one of the two"
        raise UsageError.refuse("pruner", pruner, allowed)
    if pruner is not None and not callable(getattr(pruner, "prune", None)):
        raise UsageError.refuse("pruner", pruner, "an Optuna pruner, or None")
    if further:
        check_strategy(strategy or StrategySpec())
        if name in ONE_OBJECTIVE:
            able = ", ".join(each for each in SAMPLERS if each not in ONE_OBJECTIVE)
            raise UsageError.refuse("sampler", name, f"{able} with several objectives")
    one_of("seeding", seeding, SEEDING, " or ".join(SEEDING))
    checked("seeding", seeding, "seeding")
    check_prefixes(options, seeding)
    resources = settled("resources", Resources, resources).with_width()
    tuning = settled("system", SystemTuning, system)
    if resources.exactness != "statistical":
        check_exact(tuning.knobs)
    return StudyPlan(
        direction=direction,
        metric=metric,
        sampler=name,
        sampler_options=options,
        strategy=strategy,
        seed=whole("seed", seed, low=0),
        seeding=seeding,
        replicates=check_replicates(seeding, replicates),
        fuse=one_of("fuse", fuse, FUSE, " or ".join(FUSE)),
        further=further,
        constraints=parse_constraints(constraints),
        resources=resources,
        limits=settled("limits", Limits, limits),
        system=tuning,
        share=settled("share", Share, share),
        environment=check_environment(environment),
        notify=checked("notify", () if notify is None else notify, "notify"),
        on_end=checked("on_end", "" if on_end is None else on_end, "on_end"),
        on_error=checked("on_error", "" if on_error is None else on_error, "on_error"),
        space=space,
        optuna_sampler=sampler if is_optuna_sampler(sampler) else None,
        optuna_pruner=pruner,
    )


def make_spec(  # noqa: PLR0917 - the two halves of a study, and its names
    plan: StudyPlan,
    study: str,
    name: str,
    code: Any,
    space: Mapping[str, Any] | None,
    n_trials: Any,
    referred: Reference | None = None,
    tools: Reference | None = None,
) -> StudySpec:
    """Return the specification of a study with the id ``study`` and the name ``name``.

    ``referred`` is the result of ``refer_to(code)``. If ``referred`` is None, this function calls
    ``refer_to`` itself. ``tools`` is a reference to the pickled sampler and pruner. The reference
    is needed only if the user gave a sampler object that the scheduler cannot build by itself.

    Raises UsageError, with the field, its value and the allowed range, if the code cannot be used
    or does not fit the plan.
    """
    contract = contract_of(code)
    referred = referred or refer_to(code)
    target, path, digest, _ = referred
    surroundings = _surroundings(path, target)
    parameters, conditions = _space(plan, contract, space)
    is_own = plan.sampler == LOCAL
    strategy = plan.strategy or StrategySpec()
    if plan.optuna_pruner is not None:
        allowed = f"None for {NAMES[contract]} that is scheduled: give strategy=penstock.ASHA(...)"
        raise UsageError.refuse("pruner", plan.optuna_pruner, allowed)
    check_contract(plan, contract, target, parameters, strategy)
    weight = plan.system.energy_weight
    if weight and contract != "torch":
        able = f"for a TorchTrainable {ENERGY_ALLOWED}"
        allowed = f"0 for {target}, which has its own training loop; {able}"
        raise UsageError.refuse(ENERGY_FIELD, weight, allowed)
    if contract == "torch":
        _check_shards(plan.resources.shards, parameters, code.batch_size)
    batch_size = code.batch_size if contract == "torch" else None
    groups = _groups(plan, contract)
    if (
        contract != "torch"
        or strategy.supernet is not None
        or FIELDS["system"] not in names("spec")
    ):
        groups["system"] = "off"
    spec = StudySpec(
        id=study,
        name=name,
        contract=contract,
        code=Code(target, path, digest),
        metric=plan.metric or ("values_0" if plan.further else "value"),
        direction=plan.direction,
        n_trials=_n_trials(plan, parameters, conditions, n_trials),
        space=parameters,
        sampler=OWN if is_own else plan.sampler,
        sampler_options=own_options(plan.optuna_sampler) if is_own else plan.sampler_options,
        tools=Code(*tools[:3]) if tools else None,
        strategy=strategy,
        seed=plan.seed,
        seeding=plan.seeding,
        replicates=plan.replicates,
        fuse=plan.fuse if strategy.supernet is None else "off",
        batch_size=batch_size if isinstance(batch_size, int) else 64,
        further=plan.further,
        constraints=plan.constraints,
        conditions=conditions,
        environment=plan.environment,
        notify=plan.notify,
        on_end=plan.on_end,
        on_error=plan.on_error,
        evidence=True,
        system_fixed=_is_fixed(groups),
        **surroundings,
        **groups,
    )
    check_replicated(spec)
    check_extended(spec)
    if spec.data_token:
        return replace(spec, code=Code(*with_imports(referred, code)[:3]))
    return spec


def _is_fixed(groups: Mapping[str, Any]) -> bool:
    """Return True if all trials share one system configuration (see ``StudySpec.system_fixed``)."""
    if groups["precision"] != "fp32":
        return True
    compared = groups["probing"] == "race" and not groups["energy_weight"]
    return groups["system"] == "tune" and groups["exactness"] == "bitwise" and bool(compared)


def _groups(plan: StudyPlan, contract: str) -> dict[str, Any]:
    """Return the fields of ``StudySpec`` that come from the plan's groups of options."""
    groups = (plan.resources.of_contract(contract), plan.limits, plan.system, plan.share)
    return {name: value for group in groups for name, value in stored(group).items()}


def refer_to(code: Any) -> Reference:
    """Return the reference by which trainers, the processes that train, find ``code``.

    Raises UsageError if no reference to ``code`` is possible.
    """
    return refer(code, runs_anew=contract_of(code) == "objective")


def _surroundings(path: str, target: str) -> dict[str, Any]:
    """Return the command line and the working directory, as fields of ``StudySpec``.

    Raises UsageError if these texts, the ``path`` of the code or its ``target`` are not valid
    UTF-8, since messages and the ledger (the scheduler's database) store only text.
    """
    argv, cwd = tuple(map(str, sys.argv)), working_folder()
    code = f"the path of {target.rpartition(':')[2]}"
    texts = [(code, path), (code, target.rpartition(":")[0]), ("the working directory", cwd)]
    for field, text in (*texts, *(("sys.argv", each) for each in argv)):
        if text.encode("utf-8", "replace").decode() != text:
            escaped = os.fsencode(text).decode("utf-8", "backslashreplace")
            raise UsageError(
                f"{field} is {escaped}, which is not UTF-8 and cannot be sent to a trainer: rename"
                " that folder or file, or copy the code elsewhere"
            )
    return {"argv": argv, "cwd": cwd}


def make_asked_spec(study: str, name: str, objectives: tuple[Objective, ...]) -> StudySpec:
    """Return a study without code, for ask and tell.

    The user adds the trials of such a study and trains them without Penstock.
    """
    first, *further = objectives
    return StudySpec(
        id=study,
        name=name,
        contract="ask",
        code=Code("", "", ""),
        metric=first.metric,
        direction=first.direction,
        further=tuple(further),
        n_trials=0,
        space=None,
        sampler="optuna",
    )


def make_local_spec(
    plan: StudyPlan,
    study: str,
    name: str,
    *,
    n_trials: int,
    code: Reference,
    tools: Reference,
    kinds: Mapping[str, str],
) -> StudySpec:
    """Return the specification of a study whose objective samples by itself, in the trainer.

    ``study`` is the id and ``name`` the name of the study. ``tools`` is a reference to the pickled
    sampler and pruner, which run in the objective's process. ``kinds`` contains the class names of
    the sampler and the pruner, for display.
    """
    spec = StudySpec(
        id=study,
        name=name,
        contract="objective",
        code=Code(*code[:3]),
        metric=plan.objectives[0].metric,
        direction=plan.direction,
        further=plan.further,
        n_trials=n_trials,
        space=None,
        sampler="optuna",
        sampler_options=json.dumps(dict(kinds)),
        seed=plan.seed,
        seeding=plan.seeding,
        tools=Code(*tools[:3]),
        environment=plan.environment,
        notify=plan.notify,
        on_end=plan.on_end,
        on_error=plan.on_error,
        evidence=True,
        **_surroundings(code.path, code.target),
        **{**_groups(plan, "objective"), "system": "off"},
    )
    check_extended(spec)
    return spec


def check_name(name: str | None) -> str:
    """Return ``name`` if it is allowed as a study's name. Raises UsageError for any other name.

    If ``name`` is None, return a new name, made from the name of the running script.
    """
    if name is None:
        script = Path(sys.argv[0] if sys.argv else "").stem
        return new_id(script if script not in ("", "-c", "-m", "__main__", *_KERNELS) else "study")
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 200:
        raise UsageError.refuse("study_name", name, "1 to 200 printable characters")
    return name


def new_id(name: str) -> str:
    """Return a new id for a study of this name: a readable slug and eight hex digits.

    The eight digits are random. Two studies with the same id would silently become one, since the
    scheduler takes a submission with a known id for a repetition. With n other studies of the same
    slug, the new id is already taken with a probability of n / 2**32.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].rstrip("-") or "study"
    return f"{slug}-{secrets.token_hex(4)}"


def _space(
    plan: StudyPlan, contract: str, space: Mapping[str, Any] | None
) -> tuple[Space | None, tuple[Condition, ...]]:
    if plan.space is not None and space is not None:
        raise UsageError("GridSampler has its own space: do not pass another to optimize()")
    if space is not None:
        longest = None if plan.strategy is None else plan.strategy.max_epochs
        space = expanded(space, contract, longest)
    parameters = plan.space if space is None else parse_space(space)
    conditions = () if space is None else parse_conditions(space)
    check_space(plan.sampler, plan.sampler_options, parameters, conditions)
    if conditions and plan.strategy is not None and plan.strategy.name == "pbt":
        allowed = "None, because trials of PBT keep all their parameters"
        raise UsageError.refuse("when", conditions[0].name, allowed)
    return parameters, conditions


def _check_shards(shards: int | None, space: Space | None, batch_size: Any) -> None:
    """Raise UsageError if ``shards`` exceeds the smallest possible batch size.

    Batch sizes that are not numbers are ignored.
    """
    sizes = [batch_size]
    batch_text = dict(space or ()).get("batch_size")
    if batch_text is not None:
        given_parameter = parameter(batch_text)
        sizes = (
            [*given_parameter.choices]
            if isinstance(given_parameter, Categorical)
            else [given_parameter.low]
        )
    numbers = [size for size in sizes if isinstance(size, (int, float))]
    if shards is not None and numbers and shards > min(numbers):
        raise UsageError.refuse("resources.shards", shards, f"1 to the batch size, {min(numbers)}")


def _n_trials(
    plan: StudyPlan, space: Space | None, conditions: tuple[Condition, ...], n_trials: Any
) -> int:
    if n_trials is None and plan.sampler == "grid" and space is not None:
        n_trials = grid_size(space, conditions) * plan.replicates
    strategy = plan.strategy
    if strategy is None or strategy.name != "pbt":
        return whole("n_trials", n_trials, low=1)
    # With fewer trials the bottom quantile is always empty.
    least = math.ceil(1 / strategy.quantile)
    if whole("n_trials", n_trials, low=1) < least:
        allowed = f"at least {least}, a population with a quantile of {strategy.quantile}"
        raise UsageError.refuse("n_trials", n_trials, allowed)
    return int(n_trials)
