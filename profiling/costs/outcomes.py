"""What became of epochs since the installation began, and how long attempts took to get going.

The engine keeps it, so that it is in the ledger's snapshots: counts go on where they were after a
restart, and whoever follows the ledger's events has the same ones.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate

#: What an epoch came to. ``repeated``: it was accepted before, and computed again to get to its
#: state. Of an attempt that ended early, the epoch that it was in: ``failed`` (the user's code),
#: ``lost`` (the infrastructure), ``revoked`` (an operator's deadline), ``cancelled`` (the study).
OUTCOMES = ("accepted", "repeated", "failed", "lost", "revoked", "cancelled")
#: Upper bounds of a histogram's buckets (seconds). Snapshots hold counts by them: never changed.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


@dataclass(slots=True)
class Histogram:
    """Durations in seconds by ``BOUNDS``; the last count is of those above all of them."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def saw(self, seconds: float) -> None:
        """Take in one duration; clocks that were set back make none below 0."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound, how many are at most so long), as Prometheus has it."""
        names = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


@dataclass(slots=True)
class Tally:
    """Epochs by outcome, training in accepted ones (seconds), and two histograms.

    ``to_claim``: dispatch to claim. ``to_accept``: claim to the attempt's first accepted epoch.
    """

    epochs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    trained: float = 0.0
    to_claim: Histogram = field(default_factory=Histogram)
    to_accept: Histogram = field(default_factory=Histogram)

    def saw(self, outcome: str, n: int = 1) -> None:
        """Take in what became of ``n`` epochs."""
        self.epochs[outcome] += n

    def saw_first(self, since_dispatch: float, since_claim: float) -> None:
        """Take in an attempt's first accepted epoch.

        The former by the scheduler's clock, the latter by the worker's. Nothing where it is 0: an
        older worker does not say. The way of the report counts as dispatch to claim, which
        it is alike.
        """
        if since_claim > 0.0:
            self.to_claim.saw(since_dispatch - since_claim)
            self.to_accept.saw(since_claim)
