"""Opens a study in the user's storage, with which a new study of Penstock is kept in step."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import optuna

from ...app.client.study.storage import open_storage
from ...app.server.services.ledger_location import ledger_reader
from ...base.errors import BackendError, UsageError
from ...scheduler.model.study import OVER
from . import late_trials
from .mirror import Mirror
from .storage import MirroredStorage

if TYPE_CHECKING:
    from pathlib import Path

    from optuna.trial import FrozenTrial

    from ...app.host.settings import Settings


class StudyElsewhere(Mirror):
    """The user's study that ours is kept in step with (``app.client.study.storage.Elsewhere``)."""

    @property
    def name(self) -> str:
        """The name of the user's study."""
        return self.storage.get_study_name_from_id(self.study_id)

    def joined(self) -> MirroredStorage:
        """Return the user's storage, in which our study takes the place of the user's."""
        return MirroredStorage(self)

    def keep(self, study: str, settings: Settings) -> None:
        """Keep our study ``study`` in step with the user's study until this process ends."""
        late_trials.keep(self, study, *_locks(settings))


def open_study(
    storage: Any,
    name: str | None,
    directions: Sequence[str],
    settings: Settings,
    *,
    may_exist: bool,
    must_exist: bool,
) -> StudyElsewhere:
    """Open the study ``name`` in ``storage``, and add the late trials of our studies to it.

    If ``name`` is None, open the only study. Raises as ``Mirror.open`` does, and ValueError if
    ``name`` is None and ``storage`` has no study or several.
    """
    study_name = only_name(storage) if name is None else name
    mirror = StudyElsewhere.open(
        storage, study_name, directions, may_exist=may_exist, must_exist=must_exist
    )
    _bring_late_trials(mirror, settings)
    return mirror


def only_name(storage: Any) -> str:
    """Return the name of a storage's only study. Raises ValueError if it has none or several."""
    names = optuna.get_all_study_names(storage)
    if len(names) != 1:
        raise ValueError(f"study_name is needed: {storage} has {len(names)} studies")
    return names[0]


def _bring_late_trials(mirror: Mirror, settings: Settings) -> None:
    """Write trials that ended after their scripts to the user's study, and say so on stderr."""

    def ask(study: str) -> tuple[Sequence[FrozenTrial], bool] | None:
        try:
            row = ledger_reader(settings).study(study)
        except (BackendError, UsageError):  # it is another installation's, or was deleted
            return None
        storage = open_storage(settings)
        number = storage.get_study_id_from_name(study)
        return storage.get_all_trials(number, deepcopy=False), row.status in OVER

    count, running = late_trials.bring(mirror, ask, *_locks(settings))
    if count:
        trials_words = "1 trial that had ended" if count == 1 else f"{count} trials that had ended"
        sys.stderr.write(f"{trials_words} after an earlier script is now in your storage.\n")
    for study in running:
        sys.stderr.write(
            f"An earlier script's study {study} still runs. What it finds comes to your storage"
            f" when you open the study again; penstock cancel {study} ends it.\n"
        )


def _locks(settings: Settings) -> tuple[Path, str]:
    """Return the folder for the locks of scripts that keep a study in step, and its machine's name.

    The name is empty if the ledger is a file, since that moves together with the folder.
    """
    machine = "" if settings.ledger_url.startswith("sqlite") else platform.node()
    return settings.run / "mirrors", machine
