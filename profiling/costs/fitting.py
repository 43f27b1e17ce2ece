"""The throughput model, fitted to a few measured places, with the uncertainty that remains.

Theory of operation. The logarithm of the time is the model's, plus a smooth deviation, plus noise:
a Gaussian process whose mean is the seven-parameter model (``throughput``). The seven parameters
are fitted as logarithms to their most probable values under a prior (damped Gauss-Newton). With the
prior, one or two points are enough; it is on ratios only, so any unit of time and of work fits
equally well. Estimates use the linearised model (Rasmussen and Williams, "Gaussian processes for
machine learning", 2006, section 2.7). Near a measured place they follow the measurement with
confidence; far from all of them they follow the model.

This is plain Python on purpose: the matrices are small, and a plan that is made again from the same
events must not depend on a machine's linear algebra library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul
from statistics import median

from .throughput import Allocation, Estimate, Measured, packed_allocation

#: Standard deviation of the logarithm of one measured time.
NOISE = 0.05
#: Standard deviation of the deviation that is neither noise nor in the model; and its reach, in the
#: logarithms of nodes, width and a device's batch.
MISFIT = 0.15
REACH = (0.5, 1.0, 0.2)
#: The most steps of a fit; a fit of a dozen places takes about six.
STEPS = 20
#: Logarithm of gamma - 1 beyond which computing and synchronising overlap fully.
STEEPEST = 5.0

_Row = list[float]

#: The ratios for which a prior is given, as pairs of positions in ``Coefficients``.
RATIOS = ((1, 0), (2, 0), (3, 2), (4, 2), (5, 4))


@dataclass(frozen=True, slots=True)
class Prior:
    """Means and standard deviations of six logarithms, before any measurement.

    Five are of the ratios ``RATIOS``, in which ``beta_grad`` is multiplied by the global batch (the
    geometric mean of the measured places). They compare computing a batch on one device with the
    fixed cost of a step; synchronising with that fixed cost; each further device with
    synchronising; a node's boundary with synchronising within a node; and each further device with
    synchronising across nodes. The last is of ``gamma`` - 1.
    """

    means: tuple[float, ...]
    deviations: tuple[float, ...]


#: From four applications on five kinds of GPU cluster (``families.json``), rounded. The deviations
#: are a little wider than measured, for CPU cores and other applications.
PRIOR = Prior((2.0, 0.3, -2.2, 0.5, -4.5, 0.6), (1.6, 1.2, 1.5, 1.0, 1.0, 1.5))


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """The result of ``fit``. An estimate takes about 50 microseconds with 12 measured places."""

    #: The measured places, each with its estimate.
    measured: dict[Allocation, Estimate]
    #: The fitted parameters.
    _theta: _Row
    #: The global batch that the parameters are relative to.
    _share: float
    #: The Cholesky factor of the measurements' covariance.
    _factor: list[_Row]
    #: The residuals at the measured places, multiplied by the inverse of ``_factor``.
    _residuals: _Row
    #: The slopes at these places by parameter, multiplied by the inverse of ``_factor``.
    _slopes: list[_Row]
    #: The Cholesky factor of the parameters' precision.
    _precision: list[_Row]

    def estimate(self, allocation: Allocation) -> Estimate:
        """Return the seconds at ``allocation``: the measurement itself if there is one."""
        measured = self.measured.get(allocation)
        if measured is not None:
            return measured
        value, slope = _model(self._theta, allocation, self._share)
        near = _solve(self._factor, [_covariance(allocation, other) for other in self.measured])
        unknown = [
            own - _dot(near, other_slope)
            for own, other_slope in zip(slope, self._slopes, strict=True)
        ]
        solved = _solve(self._precision, unknown)
        variance = MISFIT**2 - _dot(near, near) + _dot(solved, solved)
        return Estimate(
            allocation,
            math.exp(value + _dot(near, self._residuals)),
            math.sqrt(max(0.0, variance) + NOISE**2),
        )

    def curve(self, max_width: int) -> tuple[Estimate, ...]:
        """Return estimates for 1 to ``max_width`` devices of one node, with the same batch."""
        return tuple(self.estimate(packed_allocation(width)) for width in range(1, max_width + 1))


def fit(points: Iterable[Measured], prior: Prior = PRIOR) -> SpeedModel:
    """Fit the model to ``points``, at least one.

    Several points at one place count as their median.
    """
    times: dict[Allocation, _Row] = {}
    for point in points:
        times.setdefault(point.place, []).append(math.log(point.seconds))
    allocations = list(times)
    logs = [median(each) for each in times.values()]
    share = math.exp(
        _mean([math.log(allocation.share * allocation.width) for allocation in allocations])
    )
    factor = _cholesky(
        [
            [
                _covariance(row, other) + (NOISE**2 / len(times[row]) if row == other else 0.0)
                for other in allocations
            ]
            for row in allocations
        ]
    )
    theta, residuals, slopes, precision = _most_probable(allocations, logs, share, factor, prior)
    measured = {
        allocation: Estimate(allocation, math.exp(log), NOISE / math.sqrt(len(times[allocation])))
        for allocation, log in zip(allocations, logs, strict=True)
    }
    return SpeedModel(measured, theta, share, factor, residuals, slopes, precision)


def _most_probable(
    allocations: list[Allocation], logs: _Row, share: float, factor: list[_Row], prior: Prior
) -> tuple[_Row, _Row, list[_Row], list[_Row]]:
    """Return the last four fields of ``SpeedModel`` except ``_factor``: parameters to precision.

    The fit uses Levenberg-Marquardt damping: a step that does not help is tried again, shorter.
    """
    weights = [1.0 / deviation**2 for deviation in prior.deviations]
    prior_precision = [[0.0] * 7 for _ in range(7)]
    prior_precision[6][6] = weights[5]
    prior_mean = [0.0] * 6 + [prior.means[5]]
    for (i, j), weight, mean in zip(RATIOS, weights, prior.means, strict=False):
        prior_mean[i] = prior_mean[j] + mean
        prior_precision[i][i] += weight
        prior_precision[j][j] += weight
        prior_precision[i][j] = prior_precision[j][i] = -weight

    def at(theta: _Row) -> tuple[float, _Row, list[_Row], _Row]:
        """Return half the minimised sum, residuals, slopes by parameter, and prior's gradient."""
        rows = [_model(theta, allocation, share) for allocation in allocations]
        residuals = _solve(
            factor, [log - value for log, (value, _) in zip(logs, rows, strict=True)]
        )
        slopes = [_solve(factor, [row[i] for _, row in rows]) for i in range(7)]
        offset = [entry - other for entry, other in zip(theta, prior_mean, strict=True)]
        prior_gradient = [_dot(row, offset) for row in prior_precision]
        return (
            0.5 * (_dot(residuals, residuals) + _dot(offset, prior_gradient)),
            residuals,
            slopes,
            prior_gradient,
        )

    start = [_model(prior_mean, allocation, share)[0] for allocation in allocations]
    shift = _mean([log - value for log, value in zip(logs, start, strict=True)])
    theta = [value + (shift if i < 6 else 0.0) for i, value in enumerate(prior_mean)]
    cost, residuals, slopes, prior_gradient = at(theta)
    damping = 1e-3
    for _ in range(STEPS):
        normal = _normal(slopes, prior_precision)
        gradient = [
            _dot(slope, residuals) - entry
            for slope, entry in zip(slopes, prior_gradient, strict=True)
        ]
        damped = [
            [value * (1.0 + damping) if i == j else value for j, value in enumerate(row)]
            for i, row in enumerate(normal)
        ]
        lower = _cholesky(damped)
        step = _solve_back(lower, _solve(lower, gradient))
        new = [entry + min(2.0, max(-2.0, by)) for entry, by in zip(theta, step, strict=True)]
        candidate = at(new)
        if candidate[0] < cost:
            improvement, theta = cost - candidate[0], new
            cost, residuals, slopes, prior_gradient = candidate
            damping = max(1e-6, damping / 5.0)
            if improvement < 1e-3:
                break
        else:
            damping *= 5.0
            if damping > 1e6:
                break
    return theta, residuals, slopes, _cholesky(_normal(slopes, prior_precision))


def _model(theta: Sequence[float], allocation: Allocation, share: float) -> tuple[float, _Row]:
    """Return the logarithm of the model's time, and its derivatives by the seven parameters."""
    fixed, variable = math.exp(theta[0]), math.exp(theta[1]) * allocation.share / share
    grad = fixed + variable
    slopes = [fixed / grad, variable / grad, 0.0, 0.0, 0.0, 0.0, 0.0]
    if allocation.width == 1:
        return math.log(grad), slopes
    index = 2 if allocation.nodes == 1 else 4
    alpha, beta = math.exp(theta[index]), math.exp(theta[index + 1]) * (allocation.width - 2)
    sync = alpha + beta
    gamma = 1.0 + math.exp(min(theta[6], STEEPEST))
    log_ratio = gamma * math.log(sync / grad)
    # The share of computing in grad ** gamma + sync ** gamma.
    part = 1.0 / (1.0 + math.exp(log_ratio)) if log_ratio < 700.0 else 0.0
    value = math.log(grad) + (max(log_ratio, 0.0) + math.log1p(math.exp(-abs(log_ratio)))) / gamma
    slopes = [part * slope for slope in slopes]
    slopes[index], slopes[index + 1] = (1.0 - part) * alpha / sync, (1.0 - part) * beta / sync
    slopes[6] = (
        (part * math.log(grad) + (1.0 - part) * math.log(sync) - value) * (gamma - 1.0) / gamma
    )
    return value, slopes


def _covariance(one: Allocation, other: Allocation) -> float:
    """Return the covariance of the model's errors at two places."""
    ratios = (one.nodes / other.nodes, one.width / other.width, one.share / other.share)
    distance = sum(
        (math.log(ratio) / reach) ** 2 for ratio, reach in zip(ratios, REACH, strict=True)
    )
    return MISFIT**2 * math.exp(-0.5 * distance)


def _mean(values: _Row) -> float:
    return sum(values) / len(values)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    product: float = sum(map(mul, left, right))
    return product


def _normal(slopes: list[_Row], prior_precision: list[_Row]) -> list[_Row]:
    return [
        [_dot(slope, other) + by for other, by in zip(slopes, row, strict=True)]
        for slope, row in zip(slopes, prior_precision, strict=True)
    ]


def _cholesky(matrix: list[_Row]) -> list[_Row]:
    """Return the Cholesky factor of ``matrix``: lower triangular, with rows up to the diagonal."""
    lower: list[_Row] = []
    for i, row in enumerate(matrix):
        new_row: _Row = []
        for j in range(i):
            new_row.append((row[j] - _dot(new_row, lower[j])) / lower[j][j])
        new_row.append(math.sqrt(row[i] - _dot(new_row, new_row)))
        lower.append(new_row)
    return lower


def _solve(lower: list[_Row], right: _Row) -> _Row:
    """Solve forward: ``lower`` times the result is ``right``."""
    solution: _Row = []
    for row, value in zip(lower, right, strict=True):
        solution.append((value - _dot(solution, row)) / row[-1])
    return solution


def _solve_back(lower: list[_Row], right: _Row) -> _Row:
    """Solve backward: the transpose of ``lower`` times the result is ``right``."""
    solution = list(right)
    for i in range(len(solution) - 1, -1, -1):
        solution[i] /= lower[i][i]
        for j in range(i):
            solution[j] -= lower[i][j] * solution[i]
    return solution
