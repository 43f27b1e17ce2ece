"""Set options of the user's optimiser, such as ``lr``, when a piece of that name comes into force.

Theory of operation. A hyperparameter that changes by ``Steps`` consists of pieces, each in force
from some epoch on. Its later pieces set the option of its name in all parameter groups. The user's
code applies the first piece: nothing is set before a later one comes into force, nor between two
pieces. So a trial that is resumed has the options of its optimiser's state. Only a trial that
continues from another trial's state has options that its own code made from the first pieces, so it
is given those in force.

This is right only if the groups had the first piece's value unchanged. With another value (a
multiple, a rate by layer) only the user knows what a later piece should become. A schedule of
torch's on the same option would undo what a piece sets, and the piece would undo what the schedule
sets. Both cases are refused before the first step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ...base.errors import TrialFailed
from ...base.pieces import pieces

if TYPE_CHECKING:
    from torch.optim import Optimizer

_ADVICE = (
    "give the hyperparameter a name that no option has, and set the groups yourself, in clip(),"
    " from self.now(...)"
)


def check_options(params: Mapping[str, Any], optimizer: Optimizer, schedule: Any) -> None:
    """Raise ``TrialFailed`` (inexact) if a later piece could not set its option.

    ``optimizer`` is as the user's code has made it.
    """
    for name in {name for name, start, _ in pieces(params) if start}:
        values = [group[name] for group in optimizer.param_groups if name in group]
        if not values:
            continue
        first = params[name]
        if any(isinstance(value, torch.Tensor) or value != first for value in values):
            texts = ", ".join(sorted({str(value) for value in values}))
            raise TrialFailed(
                "inexact",
                f"{name!r} changes by Steps, which sets the option of that name in all parameter"
                f" groups of the optimiser, but they begin with {texts} and not with {first!r} as"
                f" it is: {_ADVICE}",
            )
        if schedule is not None and name in _scheduled(schedule):
            raise TrialFailed(
                "inexact",
                f"{name!r} changes by Steps and by the {type(schedule).__name__} that schedule()"
                f" returns: leave one of the two out, or {_ADVICE}",
            )


def set_options(optimizer: Optimizer, values: Mapping[str, Any]) -> None:
    """Set each of ``values`` in the parameter groups that have an option of its name."""
    for group in optimizer.param_groups:
        group.update({name: value for name, value in values.items() if name in group})


def _scheduled(schedule: Any) -> tuple[str, ...]:
    """Return the options that a schedule of torch's changes."""
    cycled = getattr(schedule, "cycle_momentum", False)  # OneCycleLR and CyclicLR
    return ("lr", "momentum", "betas") if cycled else ("lr",)
