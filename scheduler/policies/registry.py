"""Policies by name.

A new policy is a module here, a line of this table, and its name in ``names.py``, in the values of
the Helm chart and in ``docs/policies.md``. If it orders the trials of all studies together, its
name is in ``CROSS_STUDY``, too. A user's own policy needs none of these:
``PENSTOCK_POLICY=module:function``.
"""

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
    """Return the policy of that name, or raise ``UsageError``, which lists the known names."""
    policy = FUNCTIONS.get(name)
    if policy is None:
        raise unknown(name)
    return policy
