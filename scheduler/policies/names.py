"""Names of policies, for code that only checks names: importing the policies' modules is slow."""

from __future__ import annotations

from ...base.errors import UsageError

POLICIES = (
    "fifo", "longest_first", "static_fluid", "dynamic_fluid", "waterfill",
    "srtf", "las", "pack", "edf", "fair",
)  # fmt: skip

#: The policies that order the trials of all studies. Under any other policy each study has a share.
CROSS_STUDY = frozenset({"fifo", "srtf", "las", "pack", "edf"})


def is_plugin(name: str) -> bool:
    """Return True if ``name`` is a user's function, ``module:attr``, run outside the engine."""
    return ":" in name


def check_name(name: str) -> None:
    """Raise ``UsageError``, which lists the known names, if no policy has that name."""
    if name not in POLICIES:
        raise unknown(name)


def unknown(name: str) -> UsageError:
    """Return the error for a name that no policy has."""
    allowed = f"{', '.join(POLICIES)}, or module:function of your own"
    return UsageError.refuse("policy", name, allowed)
