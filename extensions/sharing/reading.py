"""Times of reading a trial's batches, and the time that the trial would save by sharing them.

Theory of operation. Three things are timed: the batches that the trial reads, the batches that it
finds (by the time that another trial took to read them), and copies. So the time that an epoch
would have taken alone is known. A few batches are copied even if no other trial wants them, so that
a trial without company knows the time that sharing would save.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

#: Number of copies that are made for timing, even if no other trial wants them.
TIMED = 6
#: The least number of readers: two trials, each of which reads half of the batches.
_TWO = 2
#: Number of reads and of copies whose times are remembered. Medians are robust to interruptions.
_LAST = 256


def _last() -> deque[float]:
    return deque(maxlen=_LAST)


@dataclass(slots=True, eq=False)
class Reading:
    """Times (seconds) of one trial's batches: sums of its current epoch, and single recent ones."""

    #: Number of batches that the trial has reached in this epoch.
    batches: int = 0
    #: Seconds that other trials took to read the batches that this trial found.
    spared: float = 0.0
    #: Seconds in which batches were copied, for this trial and for others.
    copying: float = 0.0
    #: Largest number of trials that a batch was read for, among batches that a second trial has
    #: had.
    readers: int = 1
    _reads: deque[float] = field(default_factory=_last)
    _copies: deque[float] = field(default_factory=_last)

    @property
    def races(self) -> bool:
        """True until enough copies have been timed."""
        return len(self._copies) < TIMED

    def begin(self) -> None:
        """Start the sums of a new epoch."""
        self.batches, self.readers, self.spared, self.copying = 0, 1, 0.0, 0.0

    def read(self, seconds: float) -> None:
        """Note that the trial has read a batch in ``seconds``."""
        self._reads.append(seconds)

    def found(self, seconds: float, readers: int) -> None:
        """Note that the trial found a batch, read in ``seconds`` for ``readers`` trials."""
        self._reads.append(seconds)
        self.spared += seconds
        self.joined(readers)

    def joined(self, readers: int) -> None:
        """Note that a second trial has had a batch that was read for ``readers`` trials."""
        self.readers = max(self.readers, readers)

    def copied(self, seconds: float) -> None:
        """Note that a batch was copied in ``seconds``."""
        self._copies.append(seconds)
        self.copying += seconds

    def alone(self, seconds: float) -> float:
        """Return the seconds without sharing for an epoch that took ``seconds``."""
        return seconds - self.copying + self.spared

    def pays(self, seconds: float, at_most: float) -> bool:
        """Return True if sharing an epoch's batches with one other trial would pay.

        The epoch took ``seconds``. Sharing pays if the epoch would take at most ``at_most`` times
        its time alone. Returns False until a batch has been copied, since batches may not be
        copyable.
        """
        if not self._copies:
            return False
        alone = self.alone(seconds)
        saved = self.batches * (median(self._reads) - median(self._copies)) / _TWO
        return alone - saved <= at_most * alone
