"""This installation's ledger as an Optuna storage, which any script may read and write.

Studies in a user's own storage are opened by an extension, which keeps the ledger's studies in step
with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ....scheduler.model.study import Objective
from ...extensions import end_of
from ...host.settings import Settings, load
from ...host.tracebacks import to_the_user
from ...spec.build import make_asked_spec, new_id

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

    from ...broker.client import Client
    from ...server.optuna_bridge.storage import LedgerStorage


@to_the_user
def storage() -> BaseStorage:
    """Return this installation's studies as a storage for Optuna.

    For example ``optuna.load_study(study_name="digits", storage=penstock.storage())``. Any of
    Optuna's tools may read it. Trials that are not run by Penstock may be written, and so may
    attributes and new studies. Raises BackendError if the ledger does not answer.
    """
    return open_storage(load())


def open_storage(settings: Settings) -> LedgerStorage:
    """Return the storage of the installation with these settings. Raises as ``storage`` does."""
    from ...server.optuna_bridge.storage import LedgerStorage
    from ...server.services.ledger_location import ledger_reader

    return LedgerStorage(ledger_reader(settings), SchedulerCommands(settings), storage)


class SchedulerCommands:
    """Sends the storage's writes to the scheduler, and starts a scheduler if none runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Client | None = None

    def send(self, kind: str, **body: Any) -> dict[str, Any]:
        """Return the scheduler's answer to a command. Raises UsageError if it refuses."""
        return self._connected().send(kind, **body)

    def create(self, name: str, directions: Sequence[str]) -> None:
        """Create a study without code, to which its users add trials."""
        several = len(directions) > 1
        names = [f"values_{k}" for k in range(len(directions))] if several else ["value"]
        pairs = zip(names, directions, strict=True)
        objectives = tuple(Objective(metric, way) for metric, way in pairs)
        self._connected().submit(make_asked_spec(new_id(name), name, objectives))

    def keep(self, value: Any) -> str:
        """Store an object, and return its placeholder's text. Raises as ``objects.keep`` does."""
        from ....tasks.objectives.objects import keep

        return keep(self._connected().store(), value)

    def _connected(self) -> Client:
        from ...broker.client import Client
        from ...host.locks import is_running
        from ...server.services.services import ensure_up, is_served_by_others

        if self._client is None or not is_running(self._settings.run, "scheduler"):
            if not is_served_by_others(self._settings):
                ensure_up(self._settings, None)
            self._client = Client(self._settings)
        return self._client


class Elsewhere(Protocol):
    """A study in the user's own storage, and the ledger's study that is kept in step with it."""

    @property
    def name(self) -> str:
        """The study's name in the user's storage."""

    @property
    def directions(self) -> list[str]:
        """``minimize`` or ``maximize``, one for each objective."""

    def copy_to(self, storage: BaseStorage, study_id: int) -> None:
        """Copy the user's study to ``study_id``, a new study in ``storage``; keep both in step."""

    def follow(self, storage: BaseStorage, study_id: int, *, scheduled: bool = False) -> None:
        """Keep the user's study in step with ``study_id`` in ``storage``; both have equal trials.

        If ``scheduled``, the scheduler samples, so no trials that others add are copied from the
        user's study.
        """

    def keep(self, study: str, settings: Settings) -> None:
        """Keep ``study``, the ledger's, in step as long as this process lives."""

    def joined(self) -> BaseStorage:
        """Return the user's storage, through which the ledger's study is read and written."""

    def sync(self) -> None:
        """Copy trials and attributes that only one of the two studies has to the other study."""

    def is_foreign(self, number: int) -> bool:
        """Return True if the ledger's trial of this number ended first in the user's storage."""


def is_elsewhere(storage: Any) -> bool:
    """Return True if a storage is given and is not this installation's ledger."""
    if storage is None:
        return False
    from ...server.optuna_bridge.storage import LedgerStorage

    return not isinstance(storage, LedgerStorage)


def open_elsewhere(
    storage: Any,
    name: str | None,
    directions: Sequence[str],
    settings: Settings,
    *,
    may_exist: bool,
    must_exist: bool,
) -> Elsewhere:
    """Return the study ``name``, or the only study if ``name`` is None, of a user's own storage.

    Raises UsageError if the storage cannot be opened, has the study although not ``may_exist``, or
    if the extension is not there; KeyError if there is no study although ``must_exist``.
    """
    opened: Elsewhere = end_of("mirroring", "elsewhere", "storage").open_study(
        storage, name, directions, settings, may_exist=may_exist, must_exist=must_exist
    )
    return opened
