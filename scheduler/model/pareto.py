"""The Pareto front: the results that no other result dominates.

A result dominates another result if it is worse in no objective and better in at least one (Deb et
al. 2002, section III). With one objective, the front is the best value and all values equal to it.
"""

from __future__ import annotations

from collections.abc import Sequence


def front(scores: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of the rows of ``scores`` that no other row dominates, in order.

    A row holds one score for each objective; larger is better.

    >>> front([(1.0, 5.0), (2.0, 4.0), (1.0, 4.0), (2.0, 4.0)])
    [0, 1, 3]
    """
    indices: list[int] = []
    # In descending order a row can be dominated only by an earlier row.
    for index in sorted(range(len(scores)), key=lambda index: tuple(scores[index]), reverse=True):
        if not any(_dominates(scores[other], scores[index]) for other in indices):
            indices.append(index)
    return sorted(indices)


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    pairs = list(zip(first, second, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
