"""Two rules of probing besides the race with confidence bounds in ``racing``.

The rules are successive halving and PipeTune's rule. Both judge by means alone, without a bound on
the error. So they need few windows, which helps if windows are expensive, but are wrong more often
on a noisy machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from ....profiling.knobs.knobs import SystemConfig
from .arm import MAX_WINDOWS, MIN_GAIN, MIN_WINDOWS, Arm

_SLOWER, _NO_FASTER = "slower than another", "no faster than the default"


def by_halving(arms: Sequence[Arm]) -> SystemConfig | None:
    """Judge by successive halving: after each round of windows, the worse half of the arms is out.

    All arms of a round have the same number of windows, which doubles with each round. The default
    counts as an arm whose mean is known to be 0. So an arm that is not faster than the default by
    ``MIN_GAIN`` is out, too. (Jamieson and Talwalkar, "Non-stochastic best arm identification and
    hyperparameter optimization", AISTATS 2016.)

    Returns the winner, () for the default, or None if it is not decided yet.
    """
    while remaining := [arm for arm in arms if not arm.out]:
        halvings = ceil(log2(len(arms) / len(remaining)))
        if min(arm.n for arm in remaining) < min(MAX_WINDOWS, MIN_WINDOWS * 2**halvings):
            return None
        remaining.sort(key=lambda arm: arm.mean)
        for rank, arm in enumerate(remaining):
            if arm.mean > -MIN_GAIN:
                arm.out = _NO_FASTER
            elif rank >= ceil(len(remaining) / 2):
                arm.out = _SLOWER
        if len(remaining) == 1 and not remaining[0].out:
            return remaining[0].config
    return ()


def by_epochs(arms: Sequence[Arm]) -> SystemConfig | None:
    """Judge by PipeTune's rule (section 5.2): the configuration with the shortest epoch wins.

    Each configuration has one epoch. Rocha et al., "PipeTune", Middleware 2020. All epochs are of
    one trial, whose first epoch was under the default.

    Returns the winner, () for the default, or None if it is not decided yet.
    """
    remaining = [arm for arm in arms if not arm.out]
    if any(arm.n == 0 for arm in remaining):
        return None
    best = min(remaining, key=lambda arm: arm.mean, default=None)
    for arm in remaining:
        if arm is not best or arm.mean >= 0:
            arm.out = _NO_FASTER if arm.mean >= 0 else _SLOWER
    return () if best is None or best.out else best.config
