"""What stands behind a ``Study``: its identity, its ledger's reader and its client for commands."""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

from ...profiling.base.errors import UsageError
from ...scheduler.model.study import Observation, Params, StudySpec
from ...tasks.process.lifeline import MARK_VARIABLE
from ..host.settings import Settings
from ..spec.plan import StudyPlan
from ..spec.space import check_params
from ..spec.warm_start import fitting

if TYPE_CHECKING:
    from ..broker.client import Client
    from ..ledger.reader import Reader
    from ..optuna_bridge.frozen_trials import Results


#: Set while ``penstock submit`` runs a user's script: ``optimize`` returns after submitting.
DETACH: ContextVar[bool] = ContextVar("DETACH", default=False)
#: Set by the command line to a list, to which every study that a script submits is added.
SUBMITTED: ContextVar[list[StudyHandle] | None] = ContextVar("SUBMITTED", default=None)


class StudyHandle:
    """A study, submitted or about to be. ``spec`` is None until it is submitted."""

    def __init__(
        self,
        plan: StudyPlan,
        study_name: str,
        study_id: str,
        settings: Settings,
        spec: StudySpec | None = None,
    ) -> None:
        self.study_name = study_name
        self.id = study_id
        self.plan = plan
        self.settings = settings
        self.spec = spec
        self.enqueued: list[Params] = []
        self.observed: list[Observation] = []
        self._kept: tuple[Reader, Results] | None = None

    def check_submitted(self) -> None:
        if self.spec is None:
            raise UsageError(f"study {self.study_name} was not submitted yet: call optimize()")

    def note_submitted(self) -> None:
        submitted = SUBMITTED.get()
        if submitted is not None:
            submitted.append(self)

    def client(self) -> Client:
        from ..broker.client import Client

        return Client(self.settings)

    def reach(self) -> Client:
        """The client for commands, once services run to answer them. They stop when long idle."""
        from ..host.locks import is_running

        if not is_running(self.settings.run, "scheduler"):
            self.ensure_up(None)
        return self.client()

    def reading(self) -> tuple[Reader, Results]:
        if self._kept is None:
            from ..optuna_bridge.frozen_trials import Results
            from ..services.ledger_location import ledger_reader

            reader = ledger_reader(self.settings)
            self._kept = (reader, Results(reader, self.id))
        return self._kept

    def ensure_up(self, devices: str | None) -> None:
        from ..services.services import agent_of, ensure_up, is_served_by_others

        if not is_served_by_others(self.settings):
            ensure_up(self.settings, devices)
        elif devices is not None:
            ensure_up(self.settings, devices, services=(agent_of(devices),))

    def warmed(self, spec: StudySpec) -> StudySpec:
        """``spec`` with the copied observations that fit its space."""
        if self.observed and spec.further:
            raise UsageError.refuse("warm_start", "results", "none with several objectives")
        known = fitting(self.observed, spec.space, spec.conditions)
        return replace(spec, observations=known)

    def wishes(self, spec: StudySpec) -> list[Params]:
        """The configurations enqueued before submission, in the order of the space."""
        return [check_params(spec.space, dict(each), spec.conditions) for each in self.enqueued]


def in_trainer() -> bool:
    """Whether this process is a trainer, which has imported the user's script."""
    return MARK_VARIABLE in os.environ


def refuse_in_trainer(what: str) -> None:
    """Raise UsageError in a trainer: a script must not start studies when it is imported."""
    if in_trainer():
        raise UsageError(
            f"{what} cannot be called while a trainer imports the script: put the call under"
            ' `if __name__ == "__main__":`'
        )
