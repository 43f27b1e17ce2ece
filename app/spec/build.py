"""Builds a ``StudySpec`` from a user's arguments and checks all of it before anything starts."""

from __future__ import annotations

import math
import os
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...profiling.base.errors import UsageError
from ...profiling.knobs.knobs import check_exact
from ...scheduler.model.study import Code, Condition, StrategySpec, StudySpec
from ...tasks.contracts.code import reference
from ..common.validation import whole
from .conditions import parse_conditions
from .contracts import check_asked, check_contract, contract_of
from .energy_weight import ALLOWED, FIELD
from .objectives import check_strategy, parse_constraints, parse_objectives
from .options import Exactness, Limits, Resources, Share, SystemTuning, settled, stored
from .plan import StudyPlan
from .sampler_options import ONE_OBJECTIVE, SAMPLERS, Sampler, check_space
from .space import Categorical, Space, grid_size, parameter, parse_space

#: Scripts that run a notebook: a study is never named after them.
_KERNELS = ("ipykernel_launcher", "colab_kernel_launcher")


def make_plan(
    *,
    direction: str | None = None,
    metric: str | None = None,
    directions: Any = None,
    metrics: Any = None,
    constraints: Mapping[str, float] | None = None,
    sampler: Any = "tpe",
    strategy: StrategySpec | None = None,
    seed: int = 0,
    exactness: str | Exactness | None = None,
    resources: Resources | None = None,
    limits: Limits | None = None,
    system: str | SystemTuning = "reuse",
    share: Share | None = None,
) -> StudyPlan:
    """Check the arguments of ``create_study``. UsageError names the field, value and range."""
    metric, direction, further = parse_objectives(direction, metric, directions, metrics)
    if strategy is not None and not isinstance(strategy, StrategySpec):
        known = "ASHA(...), FullBudget(...), another strategy of penstock's, or None"
        raise UsageError.refuse("strategy", strategy, known)
    if not isinstance(sampler, Sampler):
        sampler = Sampler(sampler)
    if further:
        check_strategy(strategy or StrategySpec())
        if sampler.name in ONE_OBJECTIVE:
            able = ", ".join(name for name in SAMPLERS if name not in ONE_OBJECTIVE)
            raise UsageError.refuse("sampler", sampler.name, f"{able} with several objectives")
    exact = settled("exactness", Exactness, exactness)
    tuning = settled("system", SystemTuning, system)
    if exact.mode != "statistical":
        check_exact(tuning.knobs)
    return StudyPlan(
        direction=direction,
        metric=metric,
        sampler=sampler.name,
        sampler_options=sampler.options,
        strategy=strategy,
        seed=whole("seed", seed, low=0),
        further=further,
        constraints=parse_constraints(constraints),
        exactness=exact,
        resources=settled("resources", Resources, resources),
        limits=settled("limits", Limits, limits),
        system=tuning,
        share=settled("share", Share, share),
        space=sampler.space,
    )


def make_spec(  # noqa: PLR0917 - the two halves of a study, and its names
    plan: StudyPlan,
    study: str,
    name: str,
    code: Any,
    space: Mapping[str, Any] | None,
    n_trials: Any,
) -> StudySpec:
    """The study ``name`` with id ``study``. UsageError as in ``make_plan``, and for the code."""
    contract = contract_of(code)
    target, path, digest = reference(code)
    _check_text(path, target)
    checked, conditions = _space(plan, space)
    strategy = plan.strategy or StrategySpec()
    check_contract(plan, contract, target, checked, strategy)
    weight = plan.system.energy_weight
    if weight and contract != "torch":
        allowed = f"0 for {target}, which has its own training loop; for a TorchTrainable {ALLOWED}"
        raise UsageError.refuse(FIELD, weight, allowed)
    if contract == "torch":
        _check_shards(plan.resources.shards, checked, code.batch_size)
    exactness = plan.exactness.of_contract(contract)
    batch_size = code.batch_size if contract == "torch" else None
    groups: dict[str, Any] = {
        **stored(exactness),
        **stored(plan.resources),
        **stored(plan.limits),
        **stored(plan.system),
        **stored(plan.share),
    }
    if contract != "torch":
        groups["system"] = "off"
    return StudySpec(
        id=study,
        name=name,
        contract=contract,
        code=Code(target, path, digest),
        metric=plan.metric or ("values_0" if plan.further else "value"),
        direction=plan.direction,
        n_trials=_n_trials(plan, checked, conditions, n_trials),
        space=checked,
        sampler=plan.sampler,
        sampler_options=plan.sampler_options,
        strategy=strategy,
        seed=plan.seed,
        batch_size=batch_size if isinstance(batch_size, int) else 64,
        further=plan.further,
        constraints=plan.constraints,
        conditions=conditions,
        **groups,
    )


def _check_text(path: str, target: str) -> None:
    """Refuse code whose path is not valid text: messages and the ledger hold text only."""
    for path_part in (path, target.rpartition(":")[0]):
        if path_part.encode("utf-8", "replace").decode() != path_part:
            shown = os.fsencode(path_part).decode("utf-8", "backslashreplace")
            raise UsageError(
                f"{target.rpartition(':')[2]} is in {shown}, a path that is not UTF-8 and cannot"
                " be sent to a trainer: rename that folder or file, or copy the code elsewhere"
            )


def make_asked_spec(
    plan: StudyPlan, study: str, name: str, space: Mapping[str, Any] | None
) -> StudySpec:
    """A study whose user trains the trials themselves. UsageError as in ``make_plan``."""
    checked, conditions = _space(plan, space)
    check_asked(plan, checked)
    return StudySpec(
        id=study,
        name=name,
        contract="ask",
        code=Code("", "", ""),
        metric=plan.metric or "value",
        direction=plan.direction,
        n_trials=1,
        space=checked,
        sampler=plan.sampler,
        sampler_options=plan.sampler_options,
        seed=plan.seed,
        conditions=conditions,
    )


def check_name(name: str | None) -> str:
    """The study's name; None gives a new one each time, after the running script."""
    if name is None:
        script = Path(sys.argv[0] if sys.argv else "").stem
        return new_id(script if script not in ("", "-c", "-m", "__main__", *_KERNELS) else "study")
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 200:
        raise UsageError.refuse("study_name", name, "1 to 200 printable characters")
    return name


def new_id(name: str) -> str:
    """A new id for a study of this name: a readable slug and four hex digits."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].rstrip("-") or "study"
    return f"{slug}-{secrets.token_hex(2)}"


def _space(
    plan: StudyPlan, space: Mapping[str, Any] | None
) -> tuple[Space | None, tuple[Condition, ...]]:
    if plan.space is not None and space is not None:
        raise UsageError("GridSampler has its own space: do not pass another to optimize()")
    checked = plan.space if space is None else parse_space(space)
    conditions = () if space is None else parse_conditions(space)
    check_space(plan.sampler, checked, conditions)
    if conditions and plan.strategy is not None and plan.strategy.name == "pbt":
        allowed = "no condition with PBT, whose trials keep all their parameters"
        raise UsageError.refuse("when", conditions[0].name, allowed)
    return checked, conditions


def _check_shards(shards: int | None, space: Space | None, batch_size: Any) -> None:
    """Refuse more shards than the smallest batch has examples, where that size is known."""
    sizes = [batch_size]
    given = dict(space or ()).get("batch_size")
    if given is not None:
        given_parameter = parameter(given)
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
        n_trials = grid_size(space, conditions)
    strategy = plan.strategy
    if strategy is None or strategy.name != "pbt":
        return whole("n_trials", n_trials, low=1)
    # With fewer trials the bottom quantile is always empty.
    least = math.ceil(1 / strategy.quantile)
    if whole("n_trials", n_trials, low=1) < least:
        allowed = f"at least {least}, a population with a quantile of {strategy.quantile}"
        raise UsageError.refuse("n_trials", n_trials, allowed)
    return int(n_trials)
