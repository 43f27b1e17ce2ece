"""The probability that a trial is promoted at its next rung, from its rank at the last one.

Theory of operation. At each rung, results are turned into normal scores z by their ranks. Let z at
one rung and the next be jointly normal with correlation rho. Then a trial with score z is among the
best 1/eta of the next rung with probability Phi((rho z - q) / sqrt(1 - rho^2)), where q is the
quantile at 1 - 1/eta. rho is measured in the study on trials that are at both rungs, with a prior.
Only the better trials of the lower rung reach the upper rung. So the measured rho is too small, and
the probabilities are nearer to 1/eta than the true ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import NormalDist, correlation

#: The prior value of rho, and the number of measured pairs of scores that the prior weighs.
PRIOR, PAIRS = 0.6, 6
_NORMAL = NormalDist()


def promotion_probabilities(
    scores: Mapping[str, Mapping[int, float]], levels: Sequence[int], eta: int
) -> dict[str, float]:
    """Return the probability, above 0 and below 1, that each trial is promoted at its next rung.

    ``scores`` maps each trial to its scores by epoch. Larger scores are better. ``levels`` holds
    the epochs of the rungs, in rising order. A trial without a score at any rung gets ``1 / eta``.
    """
    probabilities = dict.fromkeys(scores, 1.0 / eta)
    quantile = _NORMAL.inv_cdf(1.0 - 1.0 / eta)
    for level, above in itertools.pairwise(levels):
        lower = _normal_scores(scores, level)
        upper = _normal_scores(scores, above)
        rho = _correlation([(lower[trial], upper[trial]) for trial in lower.keys() & upper.keys()])
        residual = (1.0 - rho * rho) ** 0.5
        probabilities |= {
            trial: _NORMAL.cdf((rho * z - quantile) / residual) for trial, z in lower.items()
        }
    return probabilities


def _normal_scores(scores: Mapping[str, Mapping[int, float]], level: int) -> dict[str, float]:
    ranking = sorted((curve[level], trial) for trial, curve in scores.items() if level in curve)
    return {
        trial: _NORMAL.inv_cdf((rank + 0.5) / len(ranking))
        for rank, (_, trial) in enumerate(ranking)
    }


def _correlation(pairs: Sequence[tuple[float, float]]) -> float:
    measured = correlation(*zip(*pairs, strict=True)) if len(pairs) > 2 else 0.0
    weight = len(pairs) if len(pairs) > 2 else 0
    return min(0.95, max(0.0, (PAIRS * PRIOR + weight * measured) / (PAIRS + weight)))
