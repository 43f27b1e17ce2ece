"""Rules of probing beside the race with confidence bounds (``racing``): halving, and the paper's.

Both judge by means alone: they have no bound of the error, and so are cheap where windows are dear,
and wrong more often where the machine is noisy.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from .arm import FEWEST_WINDOWS, LEAST, MOST_WINDOWS, Arm
from .knobs import SystemConfig

_SLOWER, _NO_FASTER = "slower than another", "no faster than the default"


def by_halving(arms: Sequence[Arm]) -> SystemConfig | None:
    """Successive halving: all have as many windows, the better half goes on with twice as many.

    Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
    optimization", AISTATS 2016. The default is an arm whose mean is known to be 0: who is not
    ``LEAST`` better goes with the worse half. The winner, () for the default, None where it is not
    decided yet.
    """
    while left := [arm for arm in arms if not arm.out]:
        halvings = ceil(log2(len(arms) / len(left)))
        if min(arm.n for arm in left) < min(MOST_WINDOWS, FEWEST_WINDOWS * 2**halvings):
            return None
        left.sort(key=lambda arm: arm.mean)
        for place, arm in enumerate(left):
            if arm.mean > -LEAST:
                arm.out = _NO_FASTER
            elif place >= ceil(len(left) / 2):
                arm.out = _SLOWER
        if len(left) == 1 and not left[0].out:
            return left[0].config
    return ()


def by_epochs(arms: Sequence[Arm]) -> SystemConfig | None:
    """PipeTune's: one epoch under each configuration, and the shortest is kept (section 5.2).

    Rocha et al., "PipeTune", Middleware 2020. Of the epochs of one trial, whose first was under the
    default. The winner, () for the default, None where it is not decided yet.
    """
    left = [arm for arm in arms if not arm.out]
    if any(arm.n == 0 for arm in left):
        return None
    best = min(left, key=lambda arm: arm.mean, default=None)
    for arm in left:
        if arm is not best or arm.mean >= 0:
            arm.out = _NO_FASTER if arm.mean >= 0 else _SLOWER
    return () if best is None or best.out else best.config
