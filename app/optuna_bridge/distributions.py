"""Reads the distributions of a study without a space from the events of its trials."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ...scheduler.model.events import Suggested
from ...scheduler.model.study import trial_id

if TYPE_CHECKING:
    from ..ledger.reader import Reader


class SuggestedDistributions:
    """The distributions of one study's trials. Each is read once."""

    def __init__(self, reader: Reader, study: str) -> None:
        self._reader = reader
        self._study = study
        self._seen = 0
        self._by_trial: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._past: dict[str, dict[str, str]] | None = None

    def read(self) -> None:
        """Read what was drawn since the last call."""
        for seq, event in self._reader.of_trials(self._study, Suggested, self._seen):
            self._by_trial[event.trial][event.name] = event.distribution
            self._seen = seq

    def of(self, trial: str) -> dict[str, str]:
        """The distributions of ``trial``, Optuna's JSON by the parameter's name."""
        return self._by_trial.get(trial) or self._imported().get(trial, {})

    def _imported(self) -> dict[str, dict[str, str]]:
        if self._past is None:
            found = self._reader.imported(self._study)
            past = () if found is None else found[1].trials
            self._past = {trial_id(self._study, each.number): dict(each.drawn) for each in past}
        return self._past
