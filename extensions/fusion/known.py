"""What a process knows of structures: who is stepped together, only with equal bits and if faster.

Theory of operation. Bits are compared for each size of batch, in the first steps of the first
epoch, for every trial of the group. Then steps are timed, together and alone, in processor time: a
long step is interrupted by other processes more often than a short one. How much faster they
are together depends on how many they are, so each doubling of their number has times of its own.
What differs once is never tried again in this process.

What whole epochs gain is measured apart: more is done in them than steps, and where other
processes are at work, too, memory and caches are shared. So now and then one trial of a group
trains its epoch alone; and where that is faster, all do, but for an epoch together now and then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from .checks import SoloCopy
from .group import Group
from .structure import Read, Structure, structure_of

if TYPE_CHECKING:
    from ...tasks.contracts.contract import TorchTrainable
    from ...tasks.training.training import Training

#: How many steps of each size are compared for all trials, and how many are timed.
CHECKED, TIMED = 3, 6
#: What together takes at most of the time alone.
FASTER = 0.95
#: How many epochs are remembered, and how many say what is faster.
_LAST, _SURE = 5, 2
#: How many groups and copies are kept from one epoch to the next.
_KEPT = 4


@dataclass(slots=True)
class Times:
    """Processor seconds a trial of one kind of work, alone and together with so many others."""

    #: For people.
    what: str
    #: How often each is timed.
    needed: int
    alone: list[float] = field(default_factory=list)
    _together: dict[int, list[float]] = field(default_factory=dict)
    #: How many were together last, by the same key: each doubling is timed once.
    _rows: dict[int, int] = field(default_factory=dict)

    def together(self, rows: int) -> list[float]:
        """The times with about so many trials, to be added to."""
        self._rows[rows.bit_length()] = rows
        return self._together.setdefault(rows.bit_length(), [])

    def undecided(self, rows: int) -> bool:
        """Whether it is unknown what is faster with so many trials."""
        return min(len(self.alone), len(self._times(rows))) < self.needed

    def refusal(self, rows: int) -> str:
        """Why not, if so many together are not faster; empty while nobody knows."""
        if self.undecided(rows):
            return ""
        together, alone = min(self._times(rows)), min(self.alone)
        if together <= FASTER * alone:
            return ""
        return (
            f"{self.what} takes {1e3 * together:.3g} ms a trial with {rows} together,"
            f" and {1e3 * alone:.3g} ms alone"
        )

    def _times(self, rows: int) -> list[float]:
        return self._together.get(rows.bit_length(), [])

    def refusals(self) -> list[str]:
        """``refusal`` for each number of trials that was tried, the fewest first."""
        return [self.refusal(rows) for _, rows in sorted(self._rows.items())]


def _last() -> deque[float]:
    return deque(maxlen=_LAST)


@dataclass(slots=True)
class EpochTimes:
    """Seconds in turn of a trial's epoch, alone and by about how many others were with it.

    Medians of the last few: an epoch is long, and the machine may be busy.
    """

    #: Epochs of groups that were begun.
    groups: int = 0
    _alone: deque[float] = field(default_factory=_last)
    _together: dict[int, deque[float]] = field(default_factory=dict)

    def is_due(self) -> bool:
        """Whether the epoch that a group begins now is trained as others are not, to be timed.

        It is the second one, where all is warm, and then each time their number has doubled.
        """
        self.groups += 1
        return self.groups > 1 and not self.groups & (self.groups - 1)

    def observe(self, seconds: float, together: int = 1) -> None:
        """A trial of ``together`` has trained an epoch."""
        if self.groups > 1:  # the first one is slow
            known = self._together.setdefault(together.bit_length(), _last())
            (known if together > 1 else self._alone).append(seconds)

    def try_again(self, rows: int) -> None:
        """Forget what about so many took together."""
        self._together.pop(rows.bit_length(), None)

    @property
    def alone(self) -> float:
        """What it takes alone; 0 while nobody knows."""
        return median(self._alone) if self._alone else 0.0

    def refusal(self, rows: int) -> str:
        """Why not, if epochs of so many together are not faster; empty while nobody knows."""
        known = self._together.get(rows.bit_length(), ())
        if min(len(known), len(self._alone)) < _SURE:
            return ""
        together, alone = median(known), self.alone
        if together <= FASTER * alone:
            return ""
        return (
            f"an epoch takes {together:.3g} s a trial with {rows} together, and {alone:.3g} s alone"
        )


@dataclass(slots=True)
class Admission:
    """What is known of one structure in this process."""

    #: Why it is not stepped together, whatever the number of trials, and why not evaluated so.
    reason: str = ""
    evaluation_reason: str = ""
    #: Steps whose bits were compared for all trials, by the size of the batch.
    checked: Counter[int] = field(default_factory=Counter)
    #: Whether SGD, Adam and AdamW step all trials at once.
    vector: bool = True
    step: Times = field(default_factory=lambda: Times("a step", TIMED))
    evaluation: Times = field(default_factory=lambda: Times("an evaluation", 2))
    epochs: EpochTimes = field(default_factory=EpochTimes)
    #: Why the last group's epochs are each trial's own for now; empty if they are not.
    slower: str = ""

    def refusal(self) -> str:
        """Why it is not stepped together, whatever was tried; empty if it is, or may be."""
        tried = self.step.refusals()
        return self.reason or (tried[-1] if tried and all(tried) else self.slower)

    def may_step(self, rows: int) -> bool:
        """Whether so many trials are stepped together, if only to find out."""
        return not (self.reason or self.step.refusal(rows))

    def may_evaluate(self, rows: int) -> bool:
        """Likewise evaluated."""
        return not (self.evaluation_reason or self.evaluation.refusal(rows))


class Known:
    """Admissions by structure, what code reads, groups and copies."""

    def __init__(self) -> None:
        self._admissions: dict[Hashable, Admission] = {}
        #: What code is known to read of its trial, by its class.
        self._reads: dict[type[TorchTrainable], set[Read]] = {}
        self._groups: list[Group] = []
        self._copies: dict[Hashable, SoloCopy] = {}

    def structure(self, run: Training) -> Structure:
        """Raises ``NotFused`` with the reason."""
        return structure_of(run, self._reads.get(type(run.code), ()))

    def admission(self, structure: Structure) -> Admission:
        """What is known of the structure."""
        return self._admissions.setdefault(structure.network, Admission())

    def learn(self, code: type[TorchTrainable], read: Read) -> None:
        """Code of this class reads this: trials with different values are kept apart."""
        self._reads.setdefault(code, set()).add(read)

    def group(self, runs: Sequence[Training], structure: Structure) -> Group:
        """The stacks of these trials: those that are there, or new ones."""
        made = self._there(runs, structure)
        if made is None:
            self.disband(runs, but=runs)
            made = Group(runs, structure, vector=self.admission(structure).vector)
        if made not in self._groups:
            self._groups = [*self._groups, made][-_KEPT:]
        return made

    def _there(self, runs: Sequence[Training], structure: Structure) -> Group | None:
        """The stacks of these trials, or their rows of stacks that others have, too."""
        vector = self.admission(structure).vector
        for group in sorted(self._groups, key=lambda each: len(each.runs)):
            if group.structure != structure or not (vector or group.optimiser is None):
                continue
            if (made := group.part(runs)) is not None:
                return made
        return None

    def disband(self, runs: Sequence[Training], *, but: Sequence[Training] = ()) -> None:
        """Drop the stacks of these trials; all in them but some have memory of their own then.

        Those do not that have stacks which stay: others may be dropped while these are stepped.
        """
        names = {id(run) for run in runs}
        kept = [g for g in self._groups if names.isdisjoint(id(run) for run in g.runs)]
        left_out = {id(run) for run in but} | {id(run) for group in kept for run in group.runs}
        for group in self._groups:
            if group in kept:
                continue
            for k, run in enumerate(group.runs):
                if id(run) not in left_out:
                    group.release(k)
        self._groups = kept

    def copy(self, run: Training, structure: Structure) -> SoloCopy:
        """What does a step alone, for trials of this structure."""
        if structure.network not in self._copies:
            kept = list(self._copies.items())[1 - _KEPT :]
            self._copies = {**dict(kept), structure.network: SoloCopy(run)}
        return self._copies[structure.network]
