"""Costs of segments in addition to training, and the rate at which other trials want their slots.

Theory of operation. A segment has a fixed overhead, whatever the number of its epochs: dispatch,
claim, the last report. It shows in the time from dispatch to the acceptance of the first epoch,
less training. The cost of every epoch besides its training (its state is hashed and reported) shows
between two epochs of one segment, and is not counted as overhead: otherwise longer segments would
seem to have more overhead, and be made longer for it. A trial that continues after it has waited
costs more than one that continues at once; how much more depends on where its state is.

A preemption is the end of a segment at which another trial gets the slot, although the segment's
own trial has not reached its target. A trial that arrives while a slot is free preempts none, nor
does a trial that gets the slot of one that has ended: no other length of the segment would have let
it begin earlier. The end of a segment that was cut is no preemption either, because its length did
not matter.
The estimate is the mean of the rate's posterior distribution under a Gamma prior, a weak one,
because a few preemptions say more than any guess: ``PRIOR_SECONDS`` of work with
``PRIOR_PREEMPTIONS`` in them. Older observations fade, as an installation is busy at one hour and
quiet at the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

#: The weight of the newest measurement in a mean.
ALPHA = 0.3
#: The fixed overhead of a segment (seconds), before one was measured.
FIRST_OVERHEAD = 0.005
#: Longest overhead of a segment (seconds). A longer one is a start-up or a fault, and is ignored.
MAX_OVERHEAD = 1.0
#: The prior: seconds of one slot's work, and preemptions in them.
PRIOR_SECONDS, PRIOR_PREEMPTIONS = 75.0, 0.25
#: Seconds of one slot's work that reduce the weight of an observation to 1/2 (in one attempt) or to
#: 1/e (in many short ones).
MEMORY = 1800.0


class SegmentStart(StrEnum):
    """Kinds of starts of a segment. The last two say where the state of a trial that waited is."""

    NEW = "new"  # the trial has no state yet
    NEXT = "next"  # the trial continues at once, in the same place
    TRAINER = "trainer"  # the state is in the memory of the trainer that trains the segment
    STORE = "store"  # the state is elsewhere: it is fetched, or computed again


#: Cost of continuing after a wait (seconds), beyond a segment's overhead, before it was measured
#: (docs/history/measured.md: 17 to 100 ms to move a state).
FIRST_RESUME = {SegmentStart.TRAINER: 0.0, SegmentStart.STORE: 0.06}


@dataclass(slots=True)
class SegmentCosts:
    """Measured costs of the segments of one study.

    ``between`` is the time from one epoch's training to the next one's within a segment (seconds;
    None if none was measured). ``resumes`` are the costs of continuing after a wait, beyond the
    overhead, by kind of start (seconds).
    """

    between: float | None = None
    resumes: dict[SegmentStart, float] = field(default_factory=dict)

    def overhead(self, fixed: float, between: float, epochs: int) -> float:
        """Return the overhead of a segment of ``epochs`` epochs (seconds), and update ``between``.

        ``fixed`` is the time from dispatch to the acceptance of the first epoch, less its training;
        the argument ``between`` is the time from there to the end, less training.
        """
        if epochs > 1:
            self.between = blend(self.between, between / (epochs - 1))
        if self.between is not None and self.between > 0.0:
            fixed -= self.between
        return max(0.0, fixed)

    def observe_resume(self, start: SegmentStart, price: float) -> None:
        """Add the cost of continuing after a wait, beyond the overhead (seconds)."""
        self.resumes[start] = blend(self.resumes.get(start), max(0.0, price))


@dataclass(slots=True)
class PreemptionTable:
    """Seconds of slots' work, and preemptions in that time. Both fade with work."""

    busy: float = 0.0
    preemptions: float = 0.0

    def observe_work(self, seconds: float) -> None:
        """Add ``seconds``, at least 0, that one slot spent on an attempt, however it ended."""
        fade = 1.0 / (1.0 + seconds / MEMORY)
        self.busy = fade * self.busy + seconds
        self.preemptions *= fade

    def observe_preemption(self) -> None:
        """Count a segment at whose end another trial got the slot."""
        self.preemptions += 1.0

    @property
    def interval(self) -> float:
        """The mean seconds of one slot's work between two preemptions."""
        return (PRIOR_SECONDS + self.busy) / (PRIOR_PREEMPTIONS + self.preemptions)


def blend(old: float | None, new: float) -> float:
    """Return the exponentially weighted mean ``old`` (None: no mean yet) updated with ``new``."""
    return new if old is None else old + ALPHA * (new - old)
