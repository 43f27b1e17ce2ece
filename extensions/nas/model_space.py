"""The choices of a model as a space that ``optimize`` takes, and the number of models in it."""

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
    """Return the choices of ``model``, a class called with ``arguments``, and of ``mutators``.

    It is an ordinary space: ``nas.space(Net) | {"lr": Float(1e-4, 1e-1, log=True)}``. A choice that
    exists only under others has them as its ``when``. Found by a dry run, in which the class is
    made several times, without memory for its weights (``models.dry_run``). Raises UsageError for a
    class not derived from ``ModelSpace``, no choice at all, one label with different candidates,
    candidates that a space cannot hold, and a mutator that matches nothing; errors of ``__init__``
    and of mutators are passed on.
    """
    from .models.model import choices_of

    return {
        label: Categorical(each.candidates, when=each.when or None)
        for label, each in choices_of(model, mutators, arguments).items()
    }


def size(space: Mapping[str, Any]) -> int:
    """Return the number of configurations; a conditional choice counts only where it applies.

    Each piece of ``Steps`` is a choice. Raises UsageError for a space that is not countable, such
    as one with a ``Float`` without a step.
    """
    pieces = expanded(space, "torch", None)
    return grid_size(parse_space(pieces), parse_conditions(pieces))
