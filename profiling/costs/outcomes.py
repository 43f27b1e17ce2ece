"""Counts of epochs by outcome since the installation began, and the start-up times of attempts.

The engine keeps them, so that they are in the ledger's snapshots: counts continue after a restart,
and any process that follows the ledger's events has the same counts.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate

#: Outcomes of an epoch. ``repeated``: it was accepted before, and computed again to get its state.
#: If an attempt ended early, its current epoch is ``failed`` (the user's code), ``lost`` (the
#: infrastructure), ``revoked`` (an operator's deadline) or ``cancelled`` (the study).
OUTCOMES = ("accepted", "repeated", "failed", "lost", "revoked", "cancelled")
#: Upper bounds of a histogram's buckets (seconds). They must never change: snapshots rely on them.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


@dataclass(slots=True)
class Histogram:
    """Numbers of durations, by ``BOUNDS``. The last count is of durations above all bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        """Add one duration (seconds). A negative one, after a clock was set back, counts as 0."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, int]]:
        """Return (upper bound, number of durations up to it) pairs, as Prometheus has them."""
        names = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


@dataclass(slots=True)
class Tally:
    """Epochs by outcome, training time in accepted ones (seconds), and two histograms.

    ``to_claim`` is the time from dispatch to claim; ``to_accept`` from the claim to the attempt's
    first accepted epoch.
    """

    epochs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    trained: float = 0.0
    to_claim: Histogram = field(default_factory=Histogram)
    to_accept: Histogram = field(default_factory=Histogram)

    def observe(self, outcome: str, n: int = 1) -> None:
        """Count the outcome of ``n`` epochs."""
        self.epochs[outcome] += n

    def observe_first(self, since_dispatch: float, since_claim: float) -> None:
        """Add an attempt's first accepted epoch.

        ``since_dispatch`` is measured by the scheduler's clock, ``since_claim`` by the worker's
        (seconds). Nothing is counted if ``since_claim`` is 0, as older workers report it. The
        travel time of the report counts as part of the time from dispatch to claim.
        """
        if since_claim > 0.0:
            self.to_claim.observe(since_dispatch - since_claim)
            self.to_accept.observe(since_claim)
