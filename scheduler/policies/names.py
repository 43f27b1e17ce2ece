"""Names of policies.

Code that only checks names imports this module, because importing the policies themselves is slow.
"""

from __future__ import annotations

from ...base.errors import UsageError

POLICIES = (
    "fifo", "longest_first", "static_fluid", "dynamic_fluid", "waterfill",
    "srtf", "las", "pack", "edf", "fair",
)  # fmt: skip

#: The policies that order the trials of all studies together. Under any other policy, each study
#: has a share of the slots.
CROSS_STUDY = frozenset({"fifo", "srtf", "las", "pack", "edf"})


def is_plugin(name: str) -> bool:
    """Return True if ``name`` means a user's own function (``module:attr``).

    Such a function runs outside the engine.
    """
    return ":" in name


def check_name(name: str) -> None:
    """Raise ``UsageError`` if no policy has that name. The message lists the known names."""
    if name not in POLICIES:
        raise unknown(name)


def unknown(name: str) -> UsageError:
    """Return the error for a name that no policy has."""
    allowed = f"{', '.join(POLICIES)}, or module:function of your own"
    return UsageError.refuse("policy", name, allowed)
