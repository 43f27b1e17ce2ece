"""Checks of a study of candidates, whose only epoch is an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...app.spec.contracts import NAMES
from ...base.errors import UsageError

if TYPE_CHECKING:
    from ...app.spec.plan import StudyPlan
    from ...scheduler.model.study import StrategySpec


def check_plan(plan: StudyPlan, contract: str, strategy: StrategySpec) -> None:
    """Raise UsageError for parts of a plan that candidates of a super-net cannot use."""
    if strategy.supernet is None:
        return
    if contract != "torch":
        allowed = f"for a TorchTrainable, not for {NAMES[contract]}: it has its own training loop"
        raise UsageError.refuse("strategy", "OneShot", allowed)
    for field in ("shards", "max_width"):
        value = getattr(plan.resources, field)
        if (value or 1) > 1:
            allowed = "1, because OneShot evaluates each candidate on one device"
            raise UsageError.refuse(f"resources.{field}", value, allowed)
    if plan.system.mode == "tune":
        raise UsageError.refuse("system", "tune", "reuse or off with OneShot, which trains nothing")
