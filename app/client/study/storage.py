"""This installation's ledger as a storage of Optuna, which any script may read and write.

Studies in storages of the user's are opened by an extension, which keeps ours in step with them.
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
    """Return the storage of the installation with these settings. Errors as ``storage``."""
    from ...server.optuna_bridge.storage import LedgerStorage
    from ...server.services.ledger_location import ledger_reader

    return LedgerStorage(ledger_reader(settings), SchedulerCommands(settings), storage)


class SchedulerCommands:
    """Sends what is written to the scheduler, which is started if none runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Client | None = None

    def send(self, kind: str, **body: Any) -> dict[str, Any]:
        """Return the scheduler's answer to a command. Raises UsageError if it refuses."""
        return self._connected().send(kind, **body)

    def create(self, name: str, directions: Sequence[str]) -> None:
        """Begin a study without code, whose trials its users add."""
        several = len(directions) > 1
        names = [f"values_{k}" for k in range(len(directions))] if several else ["value"]
        pairs = zip(names, directions, strict=True)
        objectives = tuple(Objective(metric, way) for metric, way in pairs)
        self._connected().submit(make_asked_spec(new_id(name), name, objectives))

    def keep(self, value: Any) -> str:
        """Store an object, and return its placeholder's text. Errors as in ``objects.keep``."""
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
    """A study in a storage of the user's."""

    @property
    def name(self) -> str:
        """The study's name there."""

    @property
    def directions(self) -> list[str]:
        """``minimize`` or ``maximize``, one for each objective."""

    def copy_to(self, storage: BaseStorage, study_id: int) -> None:
        """Copy all of the study to one of ours that is new, and keep both in step."""

    def follow(self, storage: BaseStorage, study_id: int, *, scheduled: bool = False) -> None:
        """Say that ours, with the same trials, is now ``study_id`` in ``storage``.

        ``scheduled``: the scheduler samples, so ours takes no trials of others.
        """

    def keep(self, study: str, settings: Settings) -> None:
        """Keep ``study``, which is ours, in step as long as this process lives."""

    def joined(self) -> BaseStorage:
        """Return the storage there, in which our study is read and written here."""

    def sync(self) -> None:
        """Bring either side what the other one has more."""

    def is_foreign(self, number: int) -> bool:
        """Return True if our trial of this number ended there first."""


def is_elsewhere(storage: Any) -> bool:
    """Return True if a storage is another one than this installation's ledger."""
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
    """Return the study ``name``, or the only one, in a storage of the user's.

    Raises UsageError if the storage cannot be opened or has the study against the wishes, or if the
    extension is not there.
    """
    opened: Elsewhere = end_of("mirroring", "elsewhere", "storage").open_study(
        storage, name, directions, settings, may_exist=may_exist, must_exist=must_exist
    )
    return opened
