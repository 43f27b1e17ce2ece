"""Reference speed curves: seconds per epoch by width, of real trainings, from fitted coefficients.

A curve belongs to an application, a kind of GPU cluster and a global batch. The batch is cut over
the devices, which are packed on as few nodes as possible. If a device's part is larger than any
that was measured, it is computed in equal pieces with one synchronisation, as AdaptDL does.

``families.json`` has the seven parameters (``throughput``) of four applications on five clusters.
Penstock's developers fitted them (``python -m benchmarks.curves --refit``) to the measurements in
the artifact of Sia (Jayaram Subramanya et al., SOSP 2023).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from ...base.errors import UsageError
from .throughput import Allocation, Coefficients, packed_allocation

FILE = Path(__file__).with_name("families.json")

#: (width, seconds per epoch), the narrowest first. Widths that were not measured are absent.
SpeedCurve = tuple[tuple[int, float], ...]


class Family(Protocol):
    """One application on one kind of cluster."""

    def curve(self, batch: float, max_width: int) -> SpeedCurve:
        """Return seconds per epoch with global batch ``batch`` on 1 to ``max_width`` devices.

        The curve ends where the measurements do, and where a device would have less than one
        example.
        """


@dataclass(frozen=True)
class Fitted:
    """A family from its coefficients. Its curves are smooth except at a node's boundary."""

    coefficients: Coefficients
    per_node: int
    devices: int
    local_batches: tuple[float, float]
    examples: int

    def curve(self, batch: float, max_width: int) -> SpeedCurve:
        """Return seconds per epoch by width, as in ``Family``."""
        points = []
        for width in range(1, int(min(max_width, self.devices, batch)) + 1):
            pieces = math.ceil(batch / width / self.local_batches[1])
            allocation = packed_allocation(width, self.per_node, batch / pieces)
            one_piece = self.coefficients.seconds(Allocation(1, 1, allocation.share))
            step = self.coefficients.seconds(allocation) + (pieces - 1) * one_piece
            points.append((width, step * self.examples / batch))
        return tuple(points)


@cache
def fitted() -> dict[tuple[str, str], Fitted]:
    """Return the families of ``families.json``, by application and cluster."""
    read = json.loads(FILE.read_text())
    return {
        (application, cluster): Fitted(
            Coefficients(**row["coefficients"]),
            read["clusters"][cluster]["per_node"],
            row["devices"],
            tuple(row["local_batches"]),
            read["examples"][application],
        )
        for application, rows in read["curves"].items()
        for cluster, row in rows.items()
    }


def curve(application: str, cluster: str, batch: float, max_width: int) -> SpeedCurve:
    """Return seconds per epoch by width, from the fitted coefficients.

    Raises ``UsageError`` for an unknown application or cluster.
    """
    families = fitted()
    if (application, cluster) not in families:
        names = ", ".join(f"{name} on {where}" for name, where in families)
        raise UsageError.refuse("application, cluster", (application, cluster), names)
    return families[application, cluster].curve(batch, max_width)
