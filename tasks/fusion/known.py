"""What a process knows of the structures that it has trained, and the stacks that it has."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from .admission import Admission
from .group import Group
from .solo_copy import SoloCopy
from .structure import Read, Structure, structure_of

if TYPE_CHECKING:
    from ..contracts.contract import TorchTrainable
    from ..training.training import Training

#: How many groups and copies are kept from one epoch to the next.
_KEPT = 4


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
        names = [id(run) for run in runs]
        vector = self.admission(structure).vector
        for group in self._groups:
            same = [id(run) for run in group.runs] == names and group.structure == structure
            if same and (vector or group.optimiser is None) and group.is_whole():
                return group
        others = [g for g in self._groups if not any(id(run) in names for run in g.runs)]
        made = Group(runs, structure, vector=vector)
        self._groups = [*others, made][-_KEPT:]
        return made

    def copy(self, run: Training, structure: Structure) -> SoloCopy:
        """What does a step alone, for trials of this structure."""
        if structure.network not in self._copies:
            kept = list(self._copies.items())[1 - _KEPT :]
            self._copies = {**dict(kept), structure.network: SoloCopy(run)}
        return self._copies[structure.network]

    def forget(self, run: Training) -> None:
        """The trial is not trained here any more: nothing of it is kept."""
        self._groups = [g for g in self._groups if all(each is not run for each in g.runs)]
