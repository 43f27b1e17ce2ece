"""Policies by name."""

from __future__ import annotations

from ..model.snapshot import Policy
from .edf import edf
from .fair import fair
from .fifo import fifo
from .fluid import dynamic_fluid, static_fluid
from .las import las
from .longest_first import longest_first
from .names import unknown
from .pack import pack
from .srtf import srtf
from .waterfill import waterfill

FUNCTIONS: dict[str, Policy] = {
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


def find_policy(name: str) -> Policy:
    """The policy of that name. Raises ``UsageError``, which lists the known names."""
    found = FUNCTIONS.get(name)
    if found is None:
        raise unknown(name)
    return found
