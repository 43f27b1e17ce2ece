"""The throughput model: seconds of a step or an epoch on given devices, in seven parameters.

On ``width`` devices of ``nodes`` nodes, each with its ``share`` of the global batch::

    T = (T_grad ** gamma + T_sync ** gamma) ** (1 / gamma)        gamma >= 1
    T_grad = alpha_grad + beta_grad * share
    T_sync = 0                                                    on one device
             alpha_local + beta_local * (width - 2)               within a node
             alpha_node + beta_node * (width - 2)                 across nodes

after Qiao et al., "Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning",
OSDI 2021, section 3.2. With ``gamma`` 1, computing and synchronising do not overlap; with a large
``gamma`` they overlap fully. Amdahl's law is ``gamma`` 1 without synchronising. T need not fall
with ``width``: T_sync may jump at a node's boundary. An epoch is a number of equal steps, so its
time has the same form, with other coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: (width, seconds per epoch there divided by those on one device), for widths that rise from 1.
Shape = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices and nodes for which a time is measured or estimated, and the work of one device.

    ``share`` is the part of the global batch that the busiest device computes. Its unit is
    arbitrary: only the ratio of two allocations' shares is used.
    """

    width: int
    nodes: int
    share: float


def packed_allocation(width: int, per_node: int | None = None, batch: float = 1.0) -> Allocation:
    """Place ``width`` devices on as few nodes of ``per_node`` devices as possible (None: on one).

    ``batch`` is the global batch. It may stay 1 if it never differs.

    >>> packed_allocation(3, per_node=2, batch=48)
    Allocation(width=3, nodes=2, share=16.0)
    """
    return Allocation(width, 1 if per_node is None else -(-width // per_node), batch / width)


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured seconds of a step, or of an epoch, on the devices of one allocation."""

    place: Allocation
    seconds: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected seconds on one allocation, and the standard deviation of their natural logarithm."""

    place: Allocation
    seconds: float
    deviation: float

    def high(self, deviations: float = 1.0) -> float:
        """Return the seconds ``deviations`` standard deviations above the expected ones."""
        return self.seconds * math.exp(deviations * self.deviation)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The seven parameters of the model."""

    #: Fixed seconds of computing a step.
    alpha_grad: float
    #: Seconds of computing for a unit of ``Allocation.share``, such as an example.
    beta_grad: float
    #: Seconds of synchronising two devices within a node.
    alpha_local: float
    #: Seconds of synchronising each further device within a node.
    beta_local: float
    #: Seconds of synchronising two devices across nodes.
    alpha_node: float
    #: Seconds of synchronising each further device across nodes.
    beta_node: float
    #: The overlap of computing and synchronising: 1 (none) to infinity (full).
    gamma: float

    def seconds(self, allocation: Allocation) -> float:
        """Return the time T of the model."""
        grad = self.alpha_grad + self.beta_grad * allocation.share
        if allocation.width == 1:
            return grad
        alpha, beta = (
            (self.alpha_local, self.beta_local)
            if allocation.nodes == 1
            else (self.alpha_node, self.beta_node)
        )
        sync = alpha + beta * (allocation.width - 2)
        high = max(grad, sync)
        ratio = min(grad, sync) / high  # the power of a large gamma would overflow
        return high * math.pow(1.0 + math.pow(ratio, self.gamma), 1.0 / self.gamma)
