"""Times of a trial's batches: the time that it saves if batches are read once.

Theory of operation. Reading is timed as it happens: the batches that the trial reads, those that it
finds (by the time that another trial took to read them), and copies. So the time that an epoch
would have taken alone is known. A few batches are copied even if no other trial wants them, so that
a trial alone knows the time that sharing would save.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

#: Number of batches of which a copy is timed even if no trial wants it.
TIMED = 6
#: The smallest number of readers: two trials, each of which reads half of the batches.
_TWO = 2
#: Number of batches and of copies that are remembered. Medians are robust to interruptions.
_LAST = 256


def _last() -> deque[float]:
    return deque(maxlen=_LAST)


@dataclass(slots=True, eq=False)
class Reading:
    """Seconds of one trial's batches in its current epoch, and of its last ones one by one."""

    #: Number of batches that it came to.
    batches: int = 0
    #: Seconds that others took to read the batches that it found.
    spared: float = 0.0
    #: Seconds in which batches were copied, for it and for others.
    copying: float = 0.0
    #: Largest number of trials that a batch was read for, if a second one has had it.
    readers: int = 1
    _reads: deque[float] = field(default_factory=_last)
    _copies: deque[float] = field(default_factory=_last)

    @property
    def races(self) -> bool:
        """True while too few copies were timed."""
        return len(self._copies) < TIMED

    def begin(self) -> None:
        """Begin an epoch."""
        self.batches, self.readers, self.spared, self.copying = 0, 1, 0.0, 0.0

    def read(self, seconds: float) -> None:
        """Note that it has read a batch in ``seconds``."""
        self._reads.append(seconds)

    def found(self, seconds: float, readers: int) -> None:
        """Note that it has found a batch, which was read in ``seconds`` for ``readers`` trials."""
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
        """Return the seconds that an epoch that took ``seconds`` would have taken alone."""
        return seconds - self.copying + self.spared

    def pays(self, seconds: float, at_most: float) -> bool:
        """Return True if sharing with one other trial pays for an epoch that took ``seconds``.

        It pays if the epoch would take at most the share ``at_most`` of its time alone. False while
        nothing was copied, since batches may not be copyable.
        """
        if not self._copies:
            return False
        alone = self.alone(seconds)
        saved = self.batches * (median(self._reads) - median(self._copies)) / _TWO
        return alone - saved <= at_most * alone
