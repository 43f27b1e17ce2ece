"""Passes what objectives log on to the handlers of their script, while the script waits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...scheduler.model.events import TrialWritten
from ...tasks.objectives.log_records import KEY, LogPlan, from_text

if TYPE_CHECKING:
    from ..ledger.reader import Reader


class RecordRelay:
    """Passes on the records of one study's trials: those of each epoch once."""

    def __init__(self, plan: LogPlan, reader: Reader, after: int) -> None:
        """``plan`` is what trainers collect. Events up to number ``after`` were before."""
        self.plan = plan
        self._reader = reader
        self._seq = after
        self._passed: set[tuple[str, str]] = set()

    def pass_on(self, study: str) -> None:
        """Pass on what was accepted of the study with this id since the last call.

        Raises BackendError if the ledger does not answer.
        """
        for seq, event in self._reader.written(study, self._seq):
            self._seq = seq
            if not isinstance(event, TrialWritten) or not event.fence:
                continue  # a user wrote it
            for key, text in event.writing.system_attrs:
                if key.startswith(KEY) and (event.trial, key) not in self._passed:
                    self._passed.add((event.trial, key))
                    for record in from_text(text):
                        logging.getLogger(record.name).handle(record)
