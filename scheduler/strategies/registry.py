"""Constructor of strategies by name."""

from __future__ import annotations

from ...base.errors import UsageError
from ..model.study import StudySpec
from .asha import Asha
from .base import RULES, STRATEGIES, UNBOUNDED, rungs
from .freeze_thaw import FreezeThaw
from .full import FullBudget
from .halving import SuccessiveHalving
from .hyperband import Hyperband
from .pasha import Pasha
from .pbt import Pbt
from .stopping import Stopping

#: Any of the strategies, with its state. The field ``kind`` tells strategies apart in a snapshot.
AnyStrategy = (
    FullBudget | SuccessiveHalving | Asha | Pasha | Hyperband | FreezeThaw | Stopping | Pbt
)


def make_strategy(spec: StudySpec) -> AnyStrategy:  # noqa: PLR0911 - one a strategy
    """Return a new instance of the strategy that the study's specification names.

    Raises ``UsageError`` if no strategy has that name, or if the strategy needs ``max_epochs`` and
    the specification has none.
    """
    plan, n = spec.strategy, spec.n_trials
    if plan.name == "full":
        return FullBudget(n_trials=n, max_epochs=plan.max_epochs or UNBOUNDED)
    if plan.name not in STRATEGIES:
        raise UsageError.refuse("strategy", plan.name, ", ".join(STRATEGIES))
    if plan.max_epochs is None:
        raise UsageError.refuse("max_epochs", None, f"a whole number >= 1 with {plan.name}")
    if plan.name in RULES:
        return Stopping(n, plan.max_epochs, plan.min_epochs, plan.name, plan.risk)
    levels = rungs(plan.min_epochs, plan.max_epochs, plan.eta)
    match plan.name:
        case "halving":
            return SuccessiveHalving(n, plan.eta, levels)
        case "asha":
            return Asha(n, plan.eta, levels, ahead=plan.ahead)
        case "pasha":
            return Pasha(Asha(n, plan.eta, levels[:2]), levels)
        case "freeze_thaw":
            return FreezeThaw(n, plan.max_epochs, Asha(n, plan.eta, levels))
        case "pbt":
            return Pbt(n, plan.max_epochs, plan.min_epochs, plan.quantile, spec.seed)
        case _:
            return Hyperband(n, plan.eta, levels, plan.overlap, plan.proportional)
