"""Concave hulls of speed curves: the best speed that a fluid schedule gets from some devices.

A trial that may be resized runs at any average of its measured speeds, including 0. The best such
average at every width is the concave hull of the points (width, speed) with (0, 0). Its breakpoints
are the only widths worth giving; between two of them the time is shared between both (Blazewicz et
al., "Preemptable malleable task scheduling problem", IEEE Trans. Computers 55(4), 2006). Widths may
be fractions: 1/2 is one of two trials on a device, at the speed measured there. Beyond the fastest
point more devices gain nothing, so the hull ends there.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hull:
    """Widths (devices) and speeds (epochs a second) of the breakpoints. Both rise strictly."""

    widths: tuple[float, ...]
    speeds: tuple[float, ...]

    @property
    def breakpoints(self) -> tuple[tuple[float, float], ...]:
        """Pairs (width, speed), the narrowest first, without (0, 0)."""
        return tuple(zip(self.widths, self.speeds, strict=True))

    def width_for(self, speed: float) -> float:
        """Return the fewest devices on average that give ``speed``; infinite if no width does."""
        at = bisect_left(self.speeds, speed)
        if at == len(self.speeds):
            return math.inf
        if speed == self.speeds[at]:
            return self.widths[at]
        slow, narrow = (self.speeds[at - 1], self.widths[at - 1]) if at else (0, 0)
        return narrow + (self.widths[at] - narrow) * (speed - slow) / (self.speeds[at] - slow)


def hull(points: Iterable[tuple[float, float]]) -> Hull:
    """Return the least concave curve through (0, 0) above all ``points``, up to its maximum.

    Points are (width, speed), at least one, with widths and speeds above 0. Of several speeds at
    one width the highest counts. Points inside a straight edge are not breakpoints. No arithmetic
    changes a point, so breakpoints are input points, bit for bit.

    >>> hull([(1, 1.0), (2, 1.5), (3, 1.4), (4, 2.0)]).breakpoints
    ((1, 1.0), (4, 2.0))
    """
    corners: list[tuple[float, float]] = []
    for width, speed in sorted(points):
        if corners and speed <= corners[-1][1]:
            continue  # not faster than a narrower width
        while corners and not _bends(
            corners[-2] if len(corners) > 1 else (0, 0), corners[-1], width, speed
        ):
            corners.pop()
        corners.append((width, speed))
    widths, speeds = zip(*corners, strict=True)
    return Hull(widths, speeds)


def _bends(
    left: tuple[float, float], middle: tuple[float, float], width: float, speed: float
) -> bool:
    """Return True if ``middle`` is above the line from ``left`` to (``width``, ``speed``)."""
    return (middle[1] - left[1]) * (width - left[0]) > (speed - left[1]) * (middle[0] - left[0])
