"""Policies by name."""

from __future__ import annotations

from ...profiling.base.errors import UsageError
from ..model.snapshot import Policy
from .edf import edf
from .fair import fair
from .fifo import fifo
from .fluid import dynamic_fluid, static_fluid
from .las import las
from .longest_first import longest_first
from .pack import pack
from .srtf import srtf
from .waterfill import waterfill

POLICIES: dict[str, Policy] = {
    "fifo": fifo,
    "longest_first": longest_first,
    "static_fluid": static_fluid,
    "dynamic_fluid": dynamic_fluid,
    "waterfill": waterfill,
    "srtf": srtf,
    "las": las,
    "pack": pack,
    "edf": edf,
    "fair": fair,
}

#: The policies that order the trials of all studies. Under the others each study has a share.
CROSS_STUDY = frozenset({"fifo", "srtf", "las", "pack", "edf"})


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
