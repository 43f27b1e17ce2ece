"""A study before it is submitted, kept in Optuna's in-memory storage."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ....base.errors import UsageError
from ....tasks.objectives.objects import Keep, keep
from ....tasks.objectives.wire import attributes, record_of, user_attributes

if TYPE_CHECKING:
    from ...broker.client import Client

_STUDY = 0


def in_memory(name: str, directions: Sequence[str]) -> BaseStorage:
    """Return an in-memory storage with one new study.

    The message that Optuna logs about a new study is suppressed.
    """
    storage, log = InMemoryStorage(), logging.getLogger("optuna.storages._in_memory")
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        storage.create_new_study([StudyDirection[each.upper()] for each in directions], name)
    finally:
        log.setLevel(before)
    return storage


def enqueued(storage: BaseStorage) -> list[dict[str, Any]]:
    """Return the enqueued configurations, in order. Raises UsageError if any has attributes."""
    waiting = storage.get_all_trials(_STUDY, states=(OptunaState.WAITING,))
    for trial in waiting:
        if trial.user_attrs:
            allowed = "none in a study with a space or a strategy: its objective may set them"
            raise UsageError.refuse("user_attrs of enqueue_trial", trial.user_attrs, allowed)
    return [dict(trial.system_attrs.get("fixed_params", {})) for trial in waiting]


def finished(storage: BaseStorage) -> list[FrozenTrial]:
    """Return the finished trials that the user has added."""
    return [t for t in storage.get_all_trials(_STUDY) if t.state.is_finished()]


def last_number(storage: BaseStorage) -> int:
    """Return the number of the newest trial."""
    return storage.get_n_trials(_STUDY) - 1


def is_untouched(storage: BaseStorage) -> bool:
    """Return True if nothing was written to the study."""
    study_attrs = storage.get_study_user_attrs(_STUDY) or storage.get_study_system_attrs(_STUDY)
    return not study_attrs and not storage.get_all_trials(_STUDY, deepcopy=False)


def send_attributes(storage: BaseStorage, study: str, client: Client) -> None:
    """Write the attributes of the prepared study to the ledger's study with the id ``study``."""
    user, system = storage.get_study_user_attrs(_STUDY), storage.get_study_system_attrs(_STUDY)
    if user or system:
        keeper = _keeping(client)
        writing = {
            "user_attrs": user_attributes(user, keeper),
            "system_attrs": attributes(system, keeper),
        }
        client.send("annotate", study=study, writing=writing)


def send_all(storage: BaseStorage, study: str, client: Client) -> None:
    """Write the prepared study's attributes and trials to the ledger's study ``study`` (an id)."""
    send_attributes(storage, study, client)
    for trial in storage.get_all_trials(_STUDY, deepcopy=False):
        client.send("add", study=study, **record_of(trial, _keeping(client)))


def _keeping(client: Client) -> Keep:
    """Return a function that stores objects that are no JSON (``tasks.objectives.objects``)."""
    return lambda value: keep(client.store(), value)
