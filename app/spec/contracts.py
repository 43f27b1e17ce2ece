"""Find the training contract of a user's code, and check that a study fits its contract.

A contract is the kind of the training code: a ``TorchTrainable``, an Optuna objective or an epoch
function.
"""

from __future__ import annotations

import ast
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ...tasks.contracts.by_value import name_of
from ...tasks.contracts.contract import TorchTrainable, is_epoch_function
from ...tasks.contracts.function_source import function_of, parsed
from ..common.validation import whole
from ..extensions import end_of, of_ends

if TYPE_CHECKING:
    from ...scheduler.model.study import StrategySpec, StudySpec
    from .plan import StudyPlan
    from .space import Space

#: The name of each contract in error messages.
NAMES = {
    "torch": "a TorchTrainable",
    "objective": "an objective",
    "epochs": "an epoch function",
    "ask": "ask and tell",
}


def contract_of(code: Any) -> str:
    """Return the contract of ``code``, one of ``scheduler.model.study.CONTRACTS``.

    The function's source, if there is any, shows which attributes of the trial the function uses.
    Two kinds of functions would fail in every trial and are refused. The first kind loops over
    ``epochs()`` but is not marked as an epoch function. The second kind is marked as an epoch
    function but calls ``suggest_*`` or ``should_prune``. Raises UsageError for such functions, and
    for code that is neither callable nor a subclass of ``TorchTrainable``.
    """
    if isinstance(code, type) and issubclass(code, TorchTrainable):
        return "torch"
    if isinstance(code, type) or not callable(code):
        allowed = "a callable objective(trial), an epoch function or a subclass of TorchTrainable"
        raise UsageError.refuse("the first argument of optimize", code, allowed)
    is_epochs, attributes = is_epoch_function(code), _used(code)
    if not is_epochs and "epochs" in attributes:
        raise UsageError(
            f"{name_of(code)} loops over trial.epochs() but is not marked as an epoch function:"
            " write @penstock.epoch_function above it"
        )
    optunas = sorted(
        name for name in attributes if name.startswith("suggest_") or name == "should_prune"
    )
    if is_epochs and optunas:
        raise UsageError(
            f"{name_of(code)} is an epoch function but calls trial.{optunas[0]}(), which only"
            " objectives have: read trial.params, and pass the space to optimize()"
        )
    return "epochs" if is_epochs else "objective"


def check_contract(
    plan: StudyPlan, contract: str, target: str, space: Space | None, strategy: StrategySpec
) -> None:
    """Raise UsageError if the study does not fit its ``contract``.

    Options that the contract needs may be missing, or options may be given that the contract does
    not allow. ``target`` is the name of the code, for messages.
    """
    if contract != "objective":
        _check_ask_tell(plan, target, space, strategy, NAMES[contract])
    if contract != "torch":
        _check_own_loop(plan, contract)
    if strategy.name == "pbt":
        _check_pbt(plan, contract, space, strategy)
    for check in of_ends("spec", "check_plan"):
        check(plan, contract, strategy)


def check_replicates(seeding: str, replicates: int) -> int:
    """Return ``replicates``, the number of trials of each configuration.

    Raises UsageError for more than 1 replicate unless ``seeding`` is ``shared``.
    """
    if whole("replicates", replicates, low=1) > 1 and seeding != "shared":
        allowed = '1 with seeding="trial": replicates have keys that all configurations share'
        raise UsageError.refuse("replicates", replicates, allowed)
    return int(replicates)


def check_environment(value: Any) -> str:
    """Return the environment that the user gave, in the form that ``StudySpec`` stores.

    The result is empty if ``value`` is None. Raises UsageError if the environment is not allowed.
    """
    if value is None:
        return ""
    check = end_of("environments", "spec", "environment").CHECKS["environment"]
    return str(check("environment", value))


def check_one_replicate(replicates: int) -> None:
    """Raise UsageError for more than 1 replicate of trials that sample parameters as they run."""
    if replicates > 1:
        allowed = "1, because trials sample as they run: for more, give a space and a strategy"
        raise UsageError.refuse("replicates", replicates, allowed)


def check_replicated(spec: StudySpec) -> None:
    """Raise UsageError if the study has replicates but does not allow them.

    Replicates also need a number of trials that is a multiple of the number of replicates.
    """
    size = check_replicates(spec.seeding, spec.replicates)
    if size == 1:
        return
    if spec.local or spec.space is None:
        check_one_replicate(size)
    for cannot, why in (
        (spec.strategy.name == "pbt", "with PBT, whose trials continue each other"),
        (bool(spec.further), "with several objectives, which have no mean"),
        (spec.hosted, "with a sampler of your own, which is told of single trials"),
    ):
        if cannot:
            raise UsageError.refuse("replicates", size, f"1 {why}")
    if spec.n_trials % size:
        allowed = f"a multiple of the {size} replicates, which each configuration has"
        raise UsageError.refuse("n_trials", spec.n_trials, allowed)


def _check_ask_tell(
    plan: StudyPlan, target: str, space: Space | None, strategy: StrategySpec, kind: str
) -> None:
    """Raise UsageError if the space, the metric or the number of epochs is missing.

    Only objectives can do without these options. ``kind`` is the name of the contract in messages.
    """
    if space is None:
        allowed = f"a mapping of names to Float, Int or lists of choices for {kind}"
        raise UsageError.refuse("space", None, allowed)
    if plan.metric is None:
        raise UsageError(
            f"{target} is {kind}, so the study must name the metric to optimize:"
            " create_study(metric='loss') or another reported name, or metric=[...] with"
            " directions=[...] for several",
            field="metric",
        )
    if strategy.max_epochs is None:
        allowed = f"ASHA(...), FullBudget(epochs) or another strategy for {kind}"
        raise UsageError.refuse("strategy", plan.strategy, allowed)


def _check_pbt(plan: StudyPlan, contract: str, space: Space | None, strategy: StrategySpec) -> None:
    """Raise UsageError if the study cannot use population based training.

    PBT copies checkpoints, which objectives do not have, and explores only parameters of the space.
    """
    if contract == "objective":
        allowed = (
            "another strategy for an objective: PBT copies checkpoints, which objectives do"
            " not have"
        )
        raise UsageError.refuse("strategy", "PBT", allowed)
    names = [name for name, _ in space or ()]
    for name in strategy.explore or ():
        if name not in names:
            raise UsageError.refuse("PBT.explore", name, f"names of the space: {', '.join(names)}")


def _check_own_loop(plan: StudyPlan, contract: str) -> None:
    """Raise UsageError for options that do not work with the user's own training loop.

    Some of these options need Penstock's training loop. Others are refused for one contract only.
    """
    kind = NAMES[contract]
    for field in ("shards", "max_width"):
        value = getattr(plan.resources, field)
        if (value or 1) > 1:
            raise UsageError.refuse(
                f"resources.{field}", value, f"1 for {kind}, which has its own training loop"
            )
    if plan.system.mode == "tune":
        raise UsageError.refuse(
            "system", "tune", f"reuse or off for {kind}, which has its own training loop"
        )
    if plan.system.precision != "fp32":
        allowed = f"fp32 for {kind}, which has its own training loop: cast there"
        raise UsageError.refuse("system.precision", plan.system.precision, allowed)
    if contract == "objective" and plan.constraints:
        allowed = "None for an objective, which calls trial.set_constraint(name, excess)"
        raise UsageError.refuse("constraints", dict(plan.constraints), allowed)
    if contract == "objective" and plan.resources.exactness == "statistical":
        allowed = "None for an objective, which handles its own restarts"
        raise UsageError.refuse("resources.exactness", plan.resources.exactness, allowed)
    if contract == "epochs" and plan.resources.exactness == "bitwise":
        allowed = (
            "statistical or None for an epoch function, whose results are not checked bit by bit"
        )
        raise UsageError.refuse("resources.exactness", plan.resources.exactness, allowed)
    change = plan.resources.on_signature_change
    if contract == "epochs" and change == "refuse":
        allowed = "record or None for an epoch function, whose results are not checked bit by bit"
        raise UsageError.refuse("resources.on_signature_change", change, allowed)


def _used(code: Any) -> set[str]:
    """Return the names of the trial's attributes that the function ``code`` uses.

    The trial is the first parameter that is not filled yet. The result is empty if the function has
    no source that can be read.
    """
    function = function_of(code)
    source = None if function is None else parsed(function)
    if source is None or not isinstance(source[0], ast.FunctionDef):
        return set()
    arguments = source[0].args.args[_taken(code) :]
    if not arguments:
        return set()
    return {
        node.attr
        for node in ast.walk(source[0])
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == arguments[0].arg
    }


def _taken(code: Any) -> int:
    """Return the number of leading parameters that are already filled, such as ``self``."""
    if isinstance(code, partial):
        return len(code.args) + _taken(code.func)
    return int(not isinstance(code, FunctionType))
