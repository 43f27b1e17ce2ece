"""The inner part of a ``Study``: identity, reader of the ledger, and client for commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from ....base.errors import UsageError
from ....scheduler.model.study import Observation, StudySpec
from ....tasks.process.lifeline import MARK_VARIABLE
from ...host.settings import Settings
from ...spec.options import Limits
from ...spec.plan import StudyPlan
from ...spec.warm_start import fitting

if TYPE_CHECKING:
    from collections.abc import Callable

    from optuna.storages import BaseStorage

    from ...broker.client import Client
    from ...ledger.reader import Reader
    from ...server.optuna_bridge.frozen_trials import Results
    from ...server.optuna_bridge.storage import LedgerStorage


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """The circumstances in which a script makes and runs its studies."""

    #: True if ``penstock submit`` runs the script: ``optimize`` returns after submitting.
    detach: bool = False
    #: The Python environment of studies that name none.
    environment: str | None = None
    #: The limits of studies that set none.
    limits: Limits | None = None
    #: The command line's list, to which every study that the script submits is added; None if the
    #: command line runs no script here.
    submitted: list[StudyHandle] | None = None
    #: The command line's list of reasons, one for each study of an Optuna script that did not run
    #: on devices.
    aside: list[str] | None = None
    #: True while a script calls Penstock's replacement of an Optuna function. Defaults and errors
    #: are Optuna's then.
    as_optuna: bool = False
    #: The id of the study for which code is sent. In trainers, the code's references to this study
    #: become the trainer's own study.
    sent_for: str | None = None


_PLAIN = ScriptRun()
_RUN: ContextVar[ScriptRun] = ContextVar("SCRIPT_RUN", default=_PLAIN)


def script_run() -> ScriptRun:
    """Return the circumstances in which this code runs."""
    return _RUN.get()


@contextmanager
def running(**changed: Any) -> Iterator[None]:
    """Change fields of ``script_run()`` for the time of the block."""
    token = _RUN.set(replace(_RUN.get(), **changed))
    try:
        yield
    finally:
        _RUN.reset(token)


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
        #: A function that returns another free name, if Penstock has numbered the study's name.
        self.next_name: Callable[[], str] | None = None
        #: True if this process has submitted the study: the study's user code runs here, too.
        self.submitted_here = False
        #: A function that says that studies run on devices, if Optuna's function made this study.
        self.announce: Callable[[], None] | None = None
        self.observed: list[Observation] = []
        #: The sources of trials that were added before submission, by number.
        self.sources: dict[int, str] = {}
        self._reader: Reader | None = None
        #: True once this process is registered as one that asks for the study's trials.
        self._asks = False

    @property
    def name_in_storage(self) -> str:
        """The name by which ``storage`` finds the study."""
        return self.study_name if self.spec is None else self.id

    def storage(self) -> BaseStorage:
        """Return the study's storage: memory until the study is submitted, then the ledger."""
        if self.spec is None:
            return self.memory
        return self._ledger

    @cached_property
    def _ledger(self) -> LedgerStorage:
        from .storage import open_storage

        return open_storage(self.settings)

    @cached_property
    def memory(self) -> BaseStorage:
        """The study as its user has prepared it before it is submitted."""
        from .preparation import in_memory

        return in_memory(self.study_name, self.plan.directions)

    def __getstate__(self) -> NoReturn:
        # A pickle would take the broker's URL, which has a password, into the checkpoint store.
        raise TypeError("what stands behind a study cannot be pickled, only the study")

    def check_submitted(self) -> None:
        if self.spec is None:
            raise UsageError(f"study {self.study_name} was not submitted yet: call optimize()")

    def note_submitted(self, spec: StudySpec) -> None:
        """Note that the scheduler has accepted the study, or its extension, as ``spec``."""
        self.spec = spec
        self.submitted_here = True
        self._note_used()

    def _note_used(self) -> None:
        submitted = script_run().submitted
        if submitted is not None and self not in submitted:
            submitted.append(self)

    def note_asked(self) -> None:
        """Register this process as one that asks the study for trials.

        This does nothing unless an Optuna script made the study and calls ``ask`` or ``tell``.
        """
        asks_here = self.spec is not None and self.spec.contract == "ask"
        if not asks_here or self.announce is None or self._asks:
            return
        from ...host.askers import Askers

        Askers(self.settings.run).join(self.id)
        self._asks = True
        self._note_used()

    def client(self) -> Client:
        from ...broker.client import Client

        return Client(self.settings, notify=lambda words: sys.stderr.write(f"{words}\n"))

    def connect(self) -> Client:
        """Return the client for commands, after starting the services if no scheduler runs here."""
        from ...host.locks import is_running

        if not is_running(self.settings.run, "scheduler"):
            self.ensure_up(None)
        return self.client()

    def reader(self) -> Reader:
        if self._reader is None:
            from ...server.services.ledger_location import ledger_reader

            self._reader = ledger_reader(self.settings)
        return self._reader

    @cached_property
    def results(self) -> Results:
        """The study's results in the ledger."""
        from ...server.optuna_bridge.frozen_trials import Results

        return Results(self.reader(), self.id)

    def ensure_up(self, devices: str | None) -> None:
        from ...server.services.services import agent_of, ensure_up, is_served_by_others

        if not is_served_by_others(self.settings):
            ensure_up(self.settings, devices)
        elif devices is not None:
            ensure_up(self.settings, devices, services=(agent_of(devices),))

    def with_warm_start(self, spec: StudySpec) -> StudySpec:
        """Return ``spec`` with the copied observations that fit its space."""
        if self.observed and spec.further:
            raise UsageError.refuse("warm_start", "results", "none with several objectives")
        observations = fitting(self.observed, spec.space, spec.conditions)
        return replace(spec, observations=observations)


def in_trainer() -> bool:
    """Return True if this process imports the user's script to run part of it, as trainers do."""
    return MARK_VARIABLE in os.environ


def refuse_in_trainer(what: str) -> None:
    """Raise UsageError in a trainer: a script must not start studies when it is imported."""
    if in_trainer():
        raise UsageError(
            f"{what} cannot be called while Penstock imports the script: put the call under"
            ' `if __name__ == "__main__":`'
        )
