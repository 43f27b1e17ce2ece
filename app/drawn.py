"""What the parameters of a study without a space were drawn from: each trial says so itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..scheduler.events import Suggested
from ..scheduler.study import trial_id

if TYPE_CHECKING:
    from .queries import Reader


class Drawn:
    """The distributions of one study's trials; those of an imported study are read once."""

    def __init__(self, reader: Reader, study: str) -> None:
        self._reader = reader
        self._study = study
        self._past: dict[str, dict[str, str]] | None = None

    def of(self, trial: str) -> dict[str, str]:
        """Optuna's distribution JSON by the parameter's name."""
        events = (event for _, event in self._reader.events(trial))
        drawn = {e.name: e.distribution for e in events if isinstance(e, Suggested)}
        return drawn or self._imported().get(trial, {})

    def _imported(self) -> dict[str, dict[str, str]]:
        if self._past is None:
            found = self._reader.imported(self._study)
            past = () if found is None else found[1].trials
            self._past = {trial_id(self._study, each.number): dict(each.drawn) for each in past}
        return self._past
