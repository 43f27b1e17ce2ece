"""Facts of structures in one process: trials are fused if they are bit-equal and faster.

Theory of operation. Bits are compared for each size of batch, in the first steps of the first
epoch, for every trial of the group. Then steps are timed, fused and alone, in processor time: a
long step is interrupted by other processes more often than a short one. The speedup depends on the
number of trials, so each doubling of their number has times of its own. A structure whose bits
differ once is never tried again in this process.

The gain of whole epochs is measured separately: an epoch does more than steps, and other processes
may share memory and caches. So from time to time one trial of a group trains its epoch alone. If
that is faster, all trials do, except for an occasional fused epoch.
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

#: Number of steps of each size that are compared for all trials, and number that are timed.
CHECKED, TIMED = 3, 6
#: Largest time of a trial in a fused group, over its time alone, that counts as faster.
FASTER = 0.95
#: Number of epochs that are remembered, and number that suffice to decide what is faster.
_LAST, _SURE = 5, 2
#: Number of groups, and of copies, that are kept from one epoch to the next.
_KEPT = 4


@dataclass(slots=True)
class Times:
    """Processor seconds per trial of one kind of work, alone and by the number of trials."""

    #: Name of the work, for people.
    what: str
    #: Number of times that each is timed.
    needed: int
    alone: list[float] = field(default_factory=list)
    _fused: dict[int, list[float]] = field(default_factory=dict)
    #: Last size of the fused group, by the same key: each doubling is timed once.
    _rows: dict[int, int] = field(default_factory=dict)

    def fused(self, rows: int) -> list[float]:
        """Return the list of times with about ``rows`` trials, to be added to."""
        self._rows[rows.bit_length()] = rows
        return self._fused.setdefault(rows.bit_length(), [])

    def undecided(self, rows: int) -> bool:
        """Return True if there are too few times to decide about ``rows`` trials."""
        return min(len(self.alone), len(self._times(rows))) < self.needed

    def refusal(self, rows: int) -> str:
        """Return the reason why ``rows`` fused trials are not faster; empty if they may be."""
        if self.undecided(rows):
            return ""
        fused, alone = min(self._times(rows)), min(self.alone)
        if fused <= FASTER * alone:
            return ""
        return (
            f"{self.what} takes {1e3 * fused:.3g} ms a trial with {rows} together,"
            f" and {1e3 * alone:.3g} ms alone"
        )

    def _times(self, rows: int) -> list[float]:
        return self._fused.get(rows.bit_length(), [])

    def refusals(self) -> list[str]:
        """Return ``refusal`` for each number of trials that was tried, the fewest first."""
        return [self.refusal(rows) for _, rows in sorted(self._rows.items())]


def _last() -> deque[float]:
    return deque(maxlen=_LAST)


@dataclass(slots=True)
class EpochTimes:
    """Seconds per trial of an epoch, alone and by the approximate number of trials.

    Medians of the last few count, since an epoch is long and the machine may be busy.
    """

    #: Number of epochs that groups have begun.
    groups: int = 0
    _alone: deque[float] = field(default_factory=_last)
    _fused: dict[int, deque[float]] = field(default_factory=dict)

    def is_due(self) -> bool:
        """Count an epoch of a group; return True if it is to be trained in the other way and timed.

        That is the second epoch, when everything is warm, and then each time that the number of
        epochs has doubled.
        """
        self.groups += 1
        return self.groups > 1 and not self.groups & (self.groups - 1)

    def observe(self, seconds: float, size: int = 1) -> None:
        """Note the seconds of a trial's epoch in a group of ``size`` trials."""
        if self.groups > 1:  # the first one is slow
            times = self._fused.setdefault(size.bit_length(), _last())
            (times if size > 1 else self._alone).append(seconds)

    def try_again(self, rows: int) -> None:
        """Forget the times of about ``rows`` fused trials."""
        self._fused.pop(rows.bit_length(), None)

    @property
    def alone(self) -> float:
        """Median seconds of an epoch alone; 0 while unknown."""
        return median(self._alone) if self._alone else 0.0

    def refusal(self, rows: int) -> str:
        """Return the reason why epochs of ``rows`` trials are not faster; empty if they may be."""
        times = self._fused.get(rows.bit_length(), ())
        if min(len(times), len(self._alone)) < _SURE:
            return ""
        fused, alone = median(times), self.alone
        if fused <= FASTER * alone:
            return ""
        return f"an epoch takes {fused:.3g} s a trial with {rows} together, and {alone:.3g} s alone"


@dataclass(slots=True)
class Admission:
    """Facts of one structure in this process, which decide what is fused."""

    #: Reasons that its steps, and its evaluations, are never fused; empty if they may be.
    reason: str = ""
    evaluation_reason: str = ""
    #: Number of steps whose bits were compared for all trials, by the size of the batch.
    checked: Counter[int] = field(default_factory=Counter)
    #: True if SGD, Adam and AdamW step all trials at once.
    vector: bool = True
    step: Times = field(default_factory=lambda: Times("a step", TIMED))
    evaluation: Times = field(default_factory=lambda: Times("an evaluation", 2))
    epochs: EpochTimes = field(default_factory=EpochTimes)
    #: Reason that trials of the last group train their epochs alone for now; empty if fused.
    slower: str = ""

    def refusal(self) -> str:
        """Return the reason why no size tried is fused; empty if one is, or may be."""
        refusals = self.step.refusals()
        return self.reason or (refusals[-1] if refusals and all(refusals) else self.slower)

    def may_step(self, rows: int) -> bool:
        """Return True if the steps of ``rows`` trials are fused, even if only to measure it."""
        return not (self.reason or self.step.refusal(rows))

    def may_evaluate(self, rows: int) -> bool:
        """Return True if evaluations of ``rows`` trials are fused, even if only to measure it."""
        return not (self.evaluation_reason or self.evaluation.refusal(rows))


class Known:
    """Admissions by structure, the reads of user code, groups and copies."""

    def __init__(self) -> None:
        self._admissions: dict[Hashable, Admission] = {}
        #: Values of its trial that code is known to read, by its class.
        self._reads: dict[type[TorchTrainable], set[Read]] = {}
        self._groups: list[Group] = []
        self._copies: dict[Hashable, SoloCopy] = {}

    def structure(self, run: Training) -> Structure:
        """Return the structure of a trial; raise ``NotFused`` with the reason if it has none."""
        return structure_of(run, self._reads.get(type(run.code), ()))

    def admission(self, structure: Structure) -> Admission:
        """Return the facts of a structure, to be added to."""
        return self._admissions.setdefault(structure.network, Admission())

    def learn(self, code: type[TorchTrainable], read: Read) -> None:
        """Note that code of this class reads this: trials that differ in it are not fused."""
        self._reads.setdefault(code, set()).add(read)

    def group(self, runs: Sequence[Training], structure: Structure) -> Group:
        """Return the stacks of these trials: existing ones, or new ones."""
        group = self._there(runs, structure)
        if group is None:
            self.disband(runs, but=runs)
            group = Group(runs, structure, vector=self.admission(structure).vector)
        if group not in self._groups:
            self._groups = [*self._groups, group][-_KEPT:]
        return group

    def _there(self, runs: Sequence[Training], structure: Structure) -> Group | None:
        """Return the existing stacks of these trials, or their rows of larger stacks, or None."""
        vector = self.admission(structure).vector
        for group in sorted(self._groups, key=lambda each: len(each.runs)):
            if group.structure != structure or not (vector or group.optimiser is None):
                continue
            if (part := group.part(runs)) is not None:
                return part
        return None

    def disband(self, runs: Sequence[Training], *, but: Sequence[Training] = ()) -> None:
        """Drop the stacks of these trials, and give the trials in them memory of their own.

        Trials in ``but`` keep their views, and so do trials that are in stacks which stay: other
        stacks may be dropped while these are stepped.
        """
        names = {id(run) for run in runs}
        groups = [g for g in self._groups if names.isdisjoint(id(run) for run in g.runs)]
        left_out = {id(run) for run in but} | {id(run) for group in groups for run in group.runs}
        for group in self._groups:
            if group in groups:
                continue
            for k, run in enumerate(group.runs):
                if id(run) not in left_out:
                    group.release(k)
        self._groups = groups

    def copy(self, run: Training, structure: Structure) -> SoloCopy:
        """Return the copy that steps alone for the trials of this structure."""
        if structure.network not in self._copies:
            newest = list(self._copies.items())[1 - _KEPT :]
            self._copies = {**dict(newest), structure.network: SoloCopy(run)}
        return self._copies[structure.network]
