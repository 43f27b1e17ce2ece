"""What it is worth to a trial that batches are read once.

Theory of operation. Reading is timed as it happens: what the trial reads, what others took to read
what it finds, and what copies take. So an epoch says what it would have taken alone. Where nobody
is there to copy for, a few batches are copied all the same: a trial alone then knows what company
would save.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

#: Of so many batches a copy is timed, whether anybody wants it or not.
TIMED = 6
#: The smallest company: two trials, each of which reads half of the batches.
_TWO = 2
#: So many batches and copies are remembered. Medians of them do not mind one that was interrupted.
_LAST = 256


def _last() -> deque[float]:
    return deque(maxlen=_LAST)


@dataclass(slots=True, eq=False)
class Reading:
    """Seconds of one trial's batches in its current epoch, and of its last ones one by one."""

    #: Batches that it came to.
    batches: int = 0
    #: What others took to read those that it found.
    spared: float = 0.0
    #: In which batches were copied, for it and for others.
    copying: float = 0.0
    #: How many trials one of the batches was read for at most, if a second one has had it.
    party: int = 1
    _reads: deque[float] = field(default_factory=_last)
    _copies: deque[float] = field(default_factory=_last)

    @property
    def races(self) -> bool:
        """Whether it is not known yet what a copy takes."""
        return len(self._copies) < TIMED

    def begin(self) -> None:
        """Begin an epoch."""
        self.batches, self.party, self.spared, self.copying = 0, 1, 0.0, 0.0

    def read(self, seconds: float) -> None:
        """It has read a batch."""
        self._reads.append(seconds)

    def found(self, seconds: float, party: int) -> None:
        """It has found a batch, which was read in ``seconds`` for so many trials."""
        self._reads.append(seconds)
        self.spared += seconds
        self.joined(party)

    def joined(self, party: int) -> None:
        """A second one has had a batch that was read for so many trials."""
        self.party = max(self.party, party)

    def copied(self, seconds: float) -> None:
        """A batch was copied."""
        self._copies.append(seconds)
        self.copying += seconds

    def alone(self, seconds: float) -> float:
        """What an epoch that took ``seconds`` would have taken alone (seconds)."""
        return seconds - self.copying + self.spared

    def pays(self, seconds: float, at_most: float) -> bool:
        """Whether in company of one an epoch that took ``seconds`` takes less than alone.

        It takes ``at_most`` that part of it. False while nothing was copied: there may be no copy.
        """
        if not self._copies:
            return False
        alone = self.alone(seconds)
        saved = self.batches * (median(self._reads) - median(self._copies)) / _TWO
        return alone - saved <= at_most * alone
