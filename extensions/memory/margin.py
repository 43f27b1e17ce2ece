"""The margin of an estimate, from the errors of earlier estimates.

Theory of operation. Split conformal prediction (Lei et al., "Distribution-free predictive inference
for regression", 2018, section 2.2): if n earlier relative errors and the next one come in any order
with the same probability, then the next is at most the ceil((n + 1) (1 - miss))-th smallest with a
probability of at least 1 - miss. Fewer than 19 errors have none of that rank, so the largest of
them counts. With fewer than ``FEW`` errors, the margin is never less than the one assumed for an
unknown family of models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: The wanted share of trials that need more than estimate and margin.
MISS = 0.05
#: Relative margins while too little is known: of recurrent models, whose kernels keep workspaces
#: that cannot be seen, and of others.
RECURRENT, OTHERS = 0.5, 0.15
#: With fewer errors than this, what was assumed still counts.
FEW = 5
#: The least relative margin, also of what was measured: no two steps need quite the same.
LEAST = 0.05


def margin(errors: Sequence[float], *, recurrent: bool = False) -> float:
    """Return the relative margin for the next trial of a family; ``LEAST`` or more.

    ``errors`` are (measured - estimated) / estimated of earlier trials of the family.
    """
    rank = math.ceil((len(errors) + 1) * (1 - MISS))
    error = sorted(errors)[min(rank, len(errors)) - 1] if errors else 0.0
    if len(errors) < FEW:
        error = max(error, RECURRENT if recurrent else OTHERS)
    return max(LEAST, error)
