"""Studies in storages of the user's, which an extension keeps ours in step with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..extensions import end_of

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

    from ..host.settings import Settings


class Elsewhere(Protocol):
    """A study in a storage of the user's."""

    @property
    def name(self) -> str:
        """Its name there."""

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
        """Tell whether a trial of ours, by its number, ended there first."""


def is_elsewhere(storage: Any) -> bool:
    """Tell whether a storage is another one than this installation's ledger."""
    if storage is None:
        return False
    from ..optuna_bridge.storage import LedgerStorage

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
