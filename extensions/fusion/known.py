"""Facts about structures in one process: trials are fused if that is bit-equal and faster.

Theory of operation. In the first steps of the first epoch, bits are compared for each size of batch
and for every trial of the group. Then steps are timed, fused and alone, in processor time, because
other processes interrupt a long step more often than a short one. The speedup depends on the number
of trials, so each doubling of that number has its own times. A structure whose bits differ once is
never fused again in this process.

The gain of whole epochs is measured separately: an epoch does more than steps, and other processes
may share memory and caches. So from time to time one trial of a group trains its epoch alone. If
that is faster, all trials train alone, except for an occasional fused epoch.
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

#: Number of steps of each batch size whose bits are compared for all trials, and number of steps
#: that are timed.
CHECKED, TIMED = 3, 6
#: A group counts as faster up to this ratio of a trial's time in the group to its time alone.
FASTER = 0.95
#: Number of epochs whose times are kept, and number of times that suffice for a decision.
_LAST, _SURE = 5, 2
#: Number of groups, and number of copies, that are kept from one epoch to the next.
_KEPT = 4


@dataclass(slots=True)
class Times:
    """Processor seconds per trial for one kind of work: alone, and fused by number of trials."""

    #: The name of the work, for messages.
    what: str
    #: Number of times needed for a decision, both alone and fused.
    needed: int
    alone: list[float] = field(default_factory=list)
    _fused: dict[int, list[float]] = field(default_factory=dict)
    #: The last size of a fused group for each key of ``_fused``: one key for each doubling.
    _rows: dict[int, int] = field(default_factory=dict)

    def fused(self, rows: int) -> list[float]:
        """Return the list of times with about ``rows`` trials; the caller adds to it."""
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
    """Seconds per trial of an epoch: alone, and fused by the approximate number of trials.

    Medians of the last few times are used, since an epoch is long and the machine may be busy.
    """

    #: Number of epochs that groups have begun.
    groups: int = 0
    _alone: deque[float] = field(default_factory=_last)
    _fused: dict[int, deque[float]] = field(default_factory=dict)

    def is_due(self) -> bool:
        """Count an epoch of a group; return True if the other way of training is to be timed in it.

        It is due in the second epoch, when caches are warm, and then each time that the number of
        epochs has doubled.
        """
        self.groups += 1
        return self.groups > 1 and not self.groups & (self.groups - 1)

    def observe(self, seconds: float, size: int = 1) -> None:
        """Note the seconds of a trial's epoch in a group of ``size`` trials."""
        if self.groups > 1:  # the first epoch is slow
            times = self._fused.setdefault(size.bit_length(), _last())
            (times if size > 1 else self._alone).append(seconds)

    def try_again(self, rows: int) -> None:
        """Forget the times of about ``rows`` fused trials."""
        self._fused.pop(rows.bit_length(), None)

    @property
    def alone(self) -> float:
        """The median seconds of an epoch alone; 0 if unknown."""
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
    """Facts about one structure in this process, by which steps and evaluations are fused."""

    #: The reasons why steps, and evaluations, are never fused; empty if they may be.
    reason: str = ""
    evaluation_reason: str = ""
    #: Number of steps whose bits were compared for all trials, by the size of the batch.
    checked: Counter[int] = field(default_factory=Counter)
    #: True if SGD, Adam and AdamW step all trials at once.
    vector: bool = True
    step: Times = field(default_factory=lambda: Times("a step", TIMED))
    evaluation: Times = field(default_factory=lambda: Times("an evaluation", 2))
    epochs: EpochTimes = field(default_factory=EpochTimes)
    #: The reason why trials of the last group train alone for now; empty if they are fused.
    slower: str = ""

    def refusal(self) -> str:
        """Return the reason why none of the tried group sizes is fused; empty if one may be."""
        refusals = self.step.refusals()
        return self.reason or (refusals[-1] if refusals and all(refusals) else self.slower)

    def may_step(self, rows: int) -> bool:
        """Return True if steps of ``rows`` trials are to be fused, even if only to time them."""
        return not (self.reason or self.step.refusal(rows))

    def may_evaluate(self, rows: int) -> bool:
        """Return True if evaluations of ``rows`` trials are to be fused, if only to time them."""
        return not (self.evaluation_reason or self.evaluation.refusal(rows))


class Known:
    """Keeps admissions by structure, the values that user code reads, groups, and copies."""

    def __init__(self) -> None:
        self._admissions: dict[Hashable, Admission] = {}
        #: The values of a trial that user code is known to read, by class of the code.
        self._reads: dict[type[TorchTrainable], set[Read]] = {}
        self._groups: list[Group] = []
        self._copies: dict[Hashable, SoloCopy] = {}

    def structure(self, run: Training) -> Structure:
        """Return the structure of a trial; raise ``NotFused`` with the reason if it has none."""
        return structure_of(run, self._reads.get(type(run.code), ()))

    def admission(self, structure: Structure) -> Admission:
        """Return the facts about a structure; the caller may change them."""
        return self._admissions.setdefault(structure.network, Admission())

    def learn(self, code: type[TorchTrainable], read: Read) -> None:
        """Note that ``code`` reads the value ``read``: trials that differ in it are not fused."""
        self._reads.setdefault(code, set()).add(read)

    def group(self, runs: Sequence[Training], structure: Structure) -> Group:
        """Return the group of these trials: an existing one, or else a new one."""
        group = self._there(runs, structure)
        if group is None:
            self.disband(runs, but=runs)
            group = Group(runs, structure, vector=self.admission(structure).vector)
        if group not in self._groups:
            self._groups = [*self._groups, group][-_KEPT:]
        return group

    def _there(self, runs: Sequence[Training], structure: Structure) -> Group | None:
        """Return an existing group of these trials, or their part of a larger one, or None."""
        vector = self.admission(structure).vector
        for group in sorted(self._groups, key=lambda each: len(each.runs)):
            if group.structure != structure or not (vector or group.optimiser is None):
                continue
            if (part := group.part(runs)) is not None:
                return part
        return None

    def disband(self, runs: Sequence[Training], *, but: Sequence[Training] = ()) -> None:
        """Drop all groups that have any of these trials, and give their trials memory of their own.

        Trials in ``but`` keep their views. So do trials that are also in a group which stays, since
        that group may be stepping now.
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
        """Return the copy with which steps of this structure's trials are repeated alone."""
        if structure.network not in self._copies:
            newest = list(self._copies.items())[1 - _KEPT :]
            self._copies = {**dict(newest), structure.network: SoloCopy(run)}
        return self._copies[structure.network]
