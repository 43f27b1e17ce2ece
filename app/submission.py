"""From a user's arguments to a ``StudySpec``: all is checked here, before anything starts."""

from __future__ import annotations

import math
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..profiling.errors import UsageError
from ..profiling.knobs import check_knobs
from ..profiling.racing import check_probing
from ..scheduler.study import (
    EXACTNESS,
    ON_SIGNATURE_CHANGE,
    SYSTEM,
    Code,
    Condition,
    Objective,
    StrategySpec,
    StudySpec,
)
from ..tasks.load import reference
from .conditions import parse_conditions
from .contracts import check_asked, check_contract, contract_of
from .energy_weight import ALLOWED, FIELD, energy_weight, in_words
from .numeric import finite, whole
from .objectives import check_strategy, parse_constraints, parse_objectives
from .sampler_options import ONE_OBJECTIVE, SAMPLERS, check_space, from_optuna, options_json
from .space import Categorical, Space, grid_size, parameter, parse_space
from .weights import check_priority, check_weight

#: A ``memory_limit`` in bytes below which no trainer can be: torch alone takes 0.3 GB.
LEAST_MEMORY = 2**29
#: Scripts that are nobody's study: what runs a notebook.
_KERNELS = ("ipykernel_launcher", "colab_kernel_launcher")


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``create_study`` settles: all of a study but its code, its space and its size.

    ``space`` is only set by an Optuna ``GridSampler``, which brings its own.
    """

    direction: str
    metric: str | None
    sampler: str
    sampler_options: str
    strategy: StrategySpec | None
    seed: int
    epoch_timeout: float | None
    retries: int
    shards: int | None
    max_width: int
    keep_checkpoints: int = 1
    exactness: str | None = None
    on_signature_change: str | None = None
    weight: float = 1.0
    priority: int = 0
    further: tuple[Objective, ...] = ()
    constraints: tuple[tuple[str, float], ...] = ()
    system: str = "off"
    knobs: tuple[str, ...] | None = None
    energy_weight: float = 0.0
    probing: str = "race"
    memory_limit: int | None = None
    space: Space | None = None

    @classmethod
    def of(cls, spec: StudySpec) -> Plan:
        """The plan that led to ``spec``."""
        given = {f.name: getattr(spec, f.name) for f in fields(cls) if f.name != "space"}
        return cls(**given)


def make_plan(
    *,
    direction: str | None,
    metric: str | None,
    sampler: Any,
    sampler_options: Mapping[str, Any] | None,
    strategy: StrategySpec | None,
    seed: int,
    epoch_timeout: float | None,
    retries: int,
    shards: int | None = None,
    max_width: int | None = None,
    keep_checkpoints: int = 1,
    exactness: str | None = None,
    on_signature_change: str | None = None,
    directions: Any = None,
    metrics: Any = None,
    constraints: Mapping[str, float] | None = None,
    system: str = "reuse",
    knobs: Sequence[str] | None = None,
    system_objective: str | float = "time",
    probing: str = "race",
    memory_limit: int | None = None,
    weight: float = 1.0,
    priority: int = 0,
) -> Plan:
    """Check the arguments of ``create_study``; UsageError names the field, value and range."""
    metric, direction, further = parse_objectives(direction, metric, directions, metrics)
    if strategy is not None and not isinstance(strategy, StrategySpec):
        known = "ASHA(...), FullBudget(...), another strategy of penstock's, or None"
        raise UsageError.refuse("strategy", strategy, known)
    space = None
    if not isinstance(sampler, str):
        sampler, found, space = from_optuna(sampler)
        sampler_options = found | dict(sampler_options or {})
    options = options_json(sampler, sampler_options or {})
    if further:
        check_strategy(strategy or StrategySpec())
        if sampler in ONE_OBJECTIVE:
            able = ", ".join(name for name in SAMPLERS if name not in ONE_OBJECTIVE)
            raise UsageError.refuse("sampler", sampler, f"{able} with several objectives")
    if exactness not in (None, *EXACTNESS):
        raise UsageError.refuse("exactness", exactness, f"{', '.join(EXACTNESS)} or None")
    if on_signature_change not in (None, *ON_SIGNATURE_CHANGE):
        known = f"{', '.join(ON_SIGNATURE_CHANGE)} or None"
        raise UsageError.refuse("on_signature_change", on_signature_change, known)
    if system not in SYSTEM:
        raise UsageError.refuse("system", system, ", ".join(SYSTEM))
    if check_probing(probing) != "race" and system != "tune":
        tried = "only what the history advises" if system == "reuse" else "nothing"
        allowed = f'race where system="{system}": {tried} is tried'
        raise UsageError.refuse("probing", probing, allowed)
    if system == "off" and knobs is not None:
        raise UsageError.refuse("knobs", knobs, 'None where system="off": nothing is turned')
    weight_of_energy = energy_weight(system_objective, system, probing)
    return Plan(
        direction=direction,
        metric=metric,
        sampler=sampler,
        sampler_options=options,
        strategy=strategy,
        seed=whole("seed", seed, low=0),
        epoch_timeout=None if epoch_timeout is None else seconds("epoch_timeout", epoch_timeout),
        retries=whole("retries", retries, low=0),
        shards=None if shards is None else whole("shards", shards, low=1),
        max_width=_max_width(max_width, shards),
        keep_checkpoints=whole("keep_checkpoints", keep_checkpoints, low=0),
        exactness=exactness,
        on_signature_change=on_signature_change,
        weight=check_weight(weight),
        priority=check_priority(priority),
        further=further,
        constraints=parse_constraints(constraints),
        system=system,
        knobs=check_knobs(knobs, exactness or "bitwise", weight_of_energy, tried=system == "tune"),
        energy_weight=weight_of_energy,
        probing=probing,
        memory_limit=None
        if memory_limit is None
        else whole("memory_limit", memory_limit, low=LEAST_MEMORY),
        space=space,
    )


def make_spec(  # noqa: PLR0917 - the two halves of a study, and its names
    plan: Plan, study: str, name: str, code: Any, space: Mapping[str, Any] | None, n_trials: Any
) -> StudySpec:
    """The study ``name`` with id ``study``; UsageError as ``make_plan``, and for the code."""
    contract = contract_of(code)
    target, path, digest = reference(code)
    _check_text(path, target)
    checked, conditions = _space(plan, space)
    strategy = plan.strategy or StrategySpec()
    check_contract(plan, contract, target, checked, strategy)
    if plan.energy_weight and contract != "torch":
        allowed = f"time of {target}: its loop is its own; for a TorchTrainable {ALLOWED}"
        raise UsageError.refuse(FIELD, in_words(plan.energy_weight), allowed)
    if contract == "torch":
        _check_shards(plan.shards, checked, code.batch_size)
    exactness = plan.exactness or ("statistical" if contract == "epochs" else "bitwise")
    batch_size = code.batch_size if contract == "torch" else None
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
        epoch_timeout=plan.epoch_timeout,
        retries=plan.retries,
        shards=plan.shards,
        max_width=plan.max_width,
        batch_size=batch_size if isinstance(batch_size, int) else 64,
        keep_checkpoints=plan.keep_checkpoints,
        exactness=exactness,
        on_signature_change=plan.on_signature_change
        or ("refuse" if exactness == "bitwise" else "record"),
        further=plan.further,
        constraints=plan.constraints,
        conditions=conditions,
        system=plan.system if contract == "torch" else "off",
        knobs=plan.knobs,
        energy_weight=plan.energy_weight,
        probing=plan.probing,
        memory_limit=plan.memory_limit,
        weight=plan.weight,
        priority=plan.priority,
    )


def _check_text(path: str, target: str) -> None:
    """Refuse code whose place is no text: messages and the ledger hold text only."""
    for place in (path, target.rpartition(":")[0]):
        if place.encode("utf-8", "replace").decode() != place:
            shown = os.fsencode(place).decode("utf-8", "backslashreplace")
            raise UsageError(
                f"{target.rpartition(':')[2]} is in {shown}, a path that is not UTF-8, by which no"
                " trainer could be told of it: rename that folder or file, or copy the code"
                " elsewhere"
            )


def make_asked_spec(
    plan: Plan, study: str, name: str, space: Mapping[str, Any] | None
) -> StudySpec:
    """A study whose trials its user trains by himself; UsageError as ``make_plan``."""
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
    """A study's name; when none is given, one after the script at work and new each time."""
    if name is None:
        script = Path(sys.argv[0] if sys.argv else "").stem
        return new_id(script if script not in ("", "-c", "-m", "__main__", *_KERNELS) else "study")
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 200:
        raise UsageError.refuse("study_name", name, "1 to 200 printable characters")
    return name


def new_id(name: str) -> str:
    """An id for a study of this name: a readable slug and four hex digits."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].rstrip("-") or "study"
    return f"{slug}-{secrets.token_hex(2)}"


def _space(
    plan: Plan, space: Mapping[str, Any] | None
) -> tuple[Space | None, tuple[Condition, ...]]:
    if plan.space is not None and space is not None:
        raise UsageError("the GridSampler brings its own space: give no other to optimize()")
    checked = plan.space if space is None else parse_space(space)
    conditions = () if space is None else parse_conditions(space)
    check_space(plan.sampler, checked, conditions)
    if conditions and plan.strategy is not None and plan.strategy.name == "pbt":
        allowed = "nothing with PBT, whose trials keep the parameters that they go on with"
        raise UsageError.refuse("when", conditions[0].name, allowed)
    return checked, conditions


def _max_width(max_width: Any, shards: Any) -> int:
    """How wide a trial may be: as said, else as its shards were made for, else one device."""
    if max_width is None:
        return 1 if shards is None else whole("shards", shards, low=1)
    width = whole("max_width", max_width, low=1)
    if shards is not None and width > shards:
        raise UsageError.refuse("max_width", width, f"1 to the number of shards, {shards}")
    return width


def _check_shards(shards: int | None, space: Space | None, batch_size: Any) -> None:
    """Refuse more shards than the smallest batch has examples, where that can be known."""
    sizes = [batch_size]
    given = dict(space or ()).get("batch_size")
    if given is not None:
        drawn = parameter(given)
        sizes = [*drawn.choices] if isinstance(drawn, Categorical) else [drawn.low]
    numbers = [size for size in sizes if isinstance(size, (int, float))]
    if shards is not None and numbers and shards > min(numbers):
        raise UsageError.refuse("shards", shards, f"1 to the batch size, {min(numbers)}")


def _n_trials(
    plan: Plan, space: Space | None, conditions: tuple[Condition, ...], n_trials: Any
) -> int:
    if n_trials is None and plan.sampler == "grid" and space is not None:
        n_trials = grid_size(space, conditions)
    strategy = plan.strategy
    if strategy is None or strategy.name != "pbt":
        return whole("n_trials", n_trials, low=1)
    # With fewer nobody is ever in the bottom quantile.
    least = math.ceil(1 / strategy.quantile)
    if whole("n_trials", n_trials, low=1) < least:
        allowed = f"at least {least}, a population with a quantile of {strategy.quantile}"
        raise UsageError.refuse("n_trials", n_trials, allowed)
    return int(n_trials)


def seconds(field: str, value: Any) -> float:
    """``value`` as seconds above 0; UsageError else."""
    allowed = "seconds above 0, or None"
    number = finite(field, value, allowed)
    if number <= 0:
        raise UsageError.refuse(field, value, allowed)
    return number
