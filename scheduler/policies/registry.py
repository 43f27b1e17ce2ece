"""Table of policies by name.

To add a policy, write a module in this package and add the policy to ``FUNCTIONS``. Also add the
policy's name to ``names.py``, to the values of the Helm chart and to ``docs/policies.md``. If the
policy orders the trials of all studies together, add its name to ``CROSS_STUDY``, too. A user's own
policy needs none of these steps: set ``PENSTOCK_POLICY=module:function``.
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
    """Return the policy with that name.

    Raises ``UsageError``, whose message lists the known names, if no policy has that name.
    """
    policy = FUNCTIONS.get(name)
    if policy is None:
        raise unknown(name)
    return policy
