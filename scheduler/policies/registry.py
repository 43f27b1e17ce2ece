"""Policies by name."""

from __future__ import annotations

from ...profiling.base.errors import UsageError
from ..model.snapshot import Policy
from .fifo import fifo
from .fluid import dynamic_fluid, static_fluid
from .longest_first import longest_first
from .waterfill import waterfill

POLICIES: dict[str, Policy] = {
    "fifo": fifo,
    "longest_first": longest_first,
    "static_fluid": static_fluid,
    "dynamic_fluid": dynamic_fluid,
    "waterfill": waterfill,
}


def is_plugin(name: str) -> bool:
    """Whether ``name`` is a user's function, ``module:attr``, which runs outside the engine."""
    return ":" in name


def find_policy(name: str) -> Policy:
    """The policy of that name. Raises ``UsageError``, which lists the known names."""
    try:
        return POLICIES[name]
    except KeyError:
        known = f"{', '.join(POLICIES)}, or module:function of your own"
        raise UsageError.refuse("policy", name, known) from None
