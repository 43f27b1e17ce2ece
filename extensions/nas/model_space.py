"""The choices of a model as a space for ``optimize``, and the number of its configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...app.spec.conditions import parse_conditions
from ...app.spec.space import Categorical, grid_size, parse_space
from ...app.spec.steps import expanded

if TYPE_CHECKING:
    from .graphs.mutators import Mutator
    from .models.model import ModelSpace


def space(
    model: type[ModelSpace], *, mutators: Sequence[Mutator] = (), **arguments: Any
) -> dict[str, Categorical]:
    """Return the choices of class ``model``, called with ``arguments``, and of ``mutators``.

    The result is an ordinary space: ``nas.space(Net) | {"lr": Float(1e-4, 1e-1, log=True)}``. If a
    choice exists only for certain values of others, its ``when`` has these values. The choices are
    found by a dry run, which makes several instances of the class without memory for weights
    (``models.dry_run``). Raises UsageError for a class not derived from ``ModelSpace``, for no
    choice at all, for one label with different candidates, for candidates that a space cannot have,
    and for a mutator that matches nothing. Errors of ``__init__`` and of mutators are passed on.
    """
    from .models.model import choices_of

    return {
        label: Categorical(each.candidates, when=each.when or None)
        for label, each in choices_of(model, mutators, arguments).items()
    }


def size(space: Mapping[str, Any]) -> int:
    """Return the number of configurations; a conditional choice counts only where it applies.

    Each piece of ``Steps`` is a choice of its own. Raises UsageError for a space that cannot be
    counted, such as one with a ``Float`` without a step.
    """
    pieces = expanded(space, "torch", None)
    return grid_size(parse_space(pieces), parse_conditions(pieces))
