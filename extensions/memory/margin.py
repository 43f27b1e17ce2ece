"""The margin of an estimate, from the errors of earlier estimates.

Theory of operation. Split conformal prediction (Lei et al., "Distribution-free predictive inference
for regression", 2018, section 2.2): if n earlier relative errors and the next one are equally
likely in any order, then the next error is at most the ceil((n + 1) (1 - miss))-th smallest with a
probability of at least 1 - miss. Among fewer than 19 errors none has that rank, so the largest
counts. With fewer than ``FEW`` errors, the margin is never less than the margin assumed for an
unknown family of models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: The accepted share of trials that need more than their estimate and margin.
MISS = 0.05
#: Relative margins while there are few errors: for recurrent models, whose kernels keep workspaces
#: that no trace shows, and for others.
RECURRENT, OTHERS = 0.5, 0.15
#: The number of errors at which the assumed margins no longer count.
FEW = 5
#: The smallest relative margin, also for measured needs: no two steps need exactly the same.
LEAST = 0.05


def margin(errors: Sequence[float], *, recurrent: bool = False) -> float:
    """Return the relative margin for the next trial of a family of models; ``LEAST`` or more.

    ``errors`` are (measured - estimated) / estimated of earlier trials of the family.
    """
    rank = math.ceil((len(errors) + 1) * (1 - MISS))
    error = sorted(errors)[min(rank, len(errors)) - 1] if errors else 0.0
    if len(errors) < FEW:
        error = max(error, RECURRENT if recurrent else OTHERS)
    return max(LEAST, error)
