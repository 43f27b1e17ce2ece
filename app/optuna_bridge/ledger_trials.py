"""The trials and attributes of one study in the ledger, read when something has happened.

Those of a local study (``StudySpec.local``) are what its objectives and its users wrote. Those of
other studies have Penstock's facts as well: parameters that the scheduler has drawn, and which
device trained them. An objective may write attributes there, too.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial

from ...tasks.objectives.history import History
from ..ledger.codec import spec_from_json
from ..ledger.reader import Reader
from .frozen_trials import KeptResults
from .updates import LedgerUpdates

if TYPE_CHECKING:
    from ..ledger.rows import StudyRow


class WrittenTrials:
    """What was written of a study, as Optuna has it."""

    #: True if a trial that has ended stays as it is: no strategy has it go on.
    lasting = True

    def __init__(self, reader: Reader, row: StudyRow, first_id: int) -> None:
        """The id of trial ``n`` is ``first_id + n``."""
        local = spec_from_json(row.spec_json).local
        self._updates = LedgerUpdates(reader, row.id, local=local)
        #: What was written. A process that writes a trial of its own keeps that up to date itself.
        self.history = History(first_id)

    def read(self, row: StudyRow) -> None:
        """Take in what is new; ``row`` is the study's. BackendError if the ledger is away."""
        del row  # it has nothing that was written
        for update in self._updates.read():
            self.history.apply(update)

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials by number. Callers must not modify them."""
        return self.history.trials

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The study's attributes."""
        return self.history.user_attrs

    @property
    def system_attrs(self) -> dict[str, Any]:
        """The attributes that Optuna's own code writes."""
        return self.history.system_attrs


class ScheduledTrials(WrittenTrials):
    """The same, with the facts of a study whose trials the scheduler proposes."""

    lasting = False

    def __init__(self, reader: Reader, row: StudyRow, first_id: int) -> None:
        super().__init__(reader, row, first_id)
        self._results = KeptResults(reader, row.id, first_id)
        self._facts: dict[str, Any] = {}
        self._trials: list[FrozenTrial] = []
        self._parts: list[tuple[FrozenTrial, FrozenTrial]] = []

    def read(self, row: StudyRow) -> None:
        """Take in what is new. A trial of which nothing is new stays the same object."""
        found = self._results.trials()  # first, as in ``LedgerUpdates.read``
        super().read(row)
        self._facts = _facts(row)
        for number, parts in enumerate(zip(found, super().trials, strict=False)):
            if number == len(self._trials):
                self._trials.append(_joined(*parts))
                self._parts.append(parts)
            elif any(a is not b for a, b in zip(parts, self._parts[number], strict=True)):
                self._trials[number], self._parts[number] = _joined(*parts), parts

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials by number. Callers must not modify them."""
        return self._trials

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The study's attributes, and Penstock's facts about it."""
        return self._facts | super().user_attrs


def trials_of(reader: Reader, row: StudyRow, first_id: int) -> WrittenTrials:
    """The trials of the study in ``row``, of which nothing is read yet."""
    local = spec_from_json(row.spec_json).local
    return (WrittenTrials if local else ScheduledTrials)(reader, row, first_id)


def _joined(result: FrozenTrial, written: FrozenTrial) -> FrozenTrial:
    """``result`` with what its objective wrote. Its intermediate values have the reported steps."""
    trial = copy.copy(result)
    for name in ("params", "distributions", "user_attrs", "system_attrs"):
        setattr(trial, name, {**getattr(result, name), **getattr(written, name)})
    trial.intermediate_values = written.intermediate_values
    return trial


def _facts(row: StudyRow) -> dict[str, Any]:
    """What the dashboard shows of a study besides its trials."""
    return {
        "id": row.id,
        "status": row.status,
        "metric": row.metric,
        "strategy": row.strategy,
        "sampler": row.sampler,
        "seed": row.seed,
        "seeding": row.seeding,
        "replicates": row.replicates,
        "n_trials": row.n_trials,
    }
