"""A trial's epochs inside a framework that owns the loop, where only the callbacks are ours.

Theory of operation. ``trial.epochs()`` is an iterator, so a callback can ask it for the next epoch
just as a loop would. The framework runs in the epoch function's thread, and waits there while the
trial is paused. A trial that must not go on is unwound out of the callback, through the framework,
whose own clean-up runs.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...base.errors import UsageError
from ...tasks.contracts.contract import EpochTrial


class Passes:
    """The passes of a framework's loop as a trial's epochs.

    ``epoch`` is the number of the last epoch that the trial has trained; 0 at its start.
    """

    def __init__(self, trial: EpochTrial) -> None:
        """Raises ``UsageError`` if ``trial`` is not the trial of an epoch function."""
        if not isinstance(trial, EpochTrial):
            allowed = "the trial of an epoch function: write @penstock.epoch_function above it"
            raise UsageError.refuse("trial", trial, allowed)
        self._trial = trial
        loaded = trial.load()
        self._state: Any = None if loaded is None else loaded["state"]
        self.epoch: int = 0 if loaded is None else loaded["epoch"]
        self._epochs = trial.epochs()
        self._folders: list[weakref.finalize[..., Passes]] = []

    def take(self) -> Any:
        """Return the state reported with that epoch.

        None at the trial's start, and on a second call. It is given up here because it may be
        large.
        """
        state, self._state = self._state, None
        return state

    def begin(self) -> int:
        """Wait until the trial may train its next epoch. Returns that epoch's number, from 1."""
        with self._cleaning_up():
            self.epoch = next(self._epochs)
        return self.epoch

    def folder(self) -> str:
        """Return a new temporary folder on this node, kept until ``clean_up``."""
        folder = tempfile.mkdtemp(prefix="penstock-")
        self._folders.append(weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True))
        return folder

    def clean_up(self) -> None:
        """Delete the folders."""
        for delete in self._folders:
            delete()

    @contextmanager
    def _cleaning_up(self) -> Iterator[None]:
        """Delete the folders if the trial is unwound here: the trainer may then end at once."""
        try:
            yield
        except BaseException:
            self.clean_up()
            raise

    def check(self, epoch: int, advice: str) -> None:
        """Refuse a framework that is at another ``epoch``: it has not resumed from the state."""
        if epoch != self.epoch:
            raise UsageError(f"epoch {epoch} begins where epoch {self.epoch} should: {advice}")

    def report(self, metrics: Mapping[str, Any], state: Any) -> None:
        """Report as ``EpochTrial.report`` does. ``take`` will return ``state``."""
        with self._cleaning_up():
            self._trial.report(metrics, checkpoint={"epoch": self.epoch, "state": state})


def missing(extra: str, error: ImportError) -> UsageError:
    """Return the error for a framework that cannot be imported."""
    return UsageError(f"{error}: pip install 'penstock[{extra}]'", field=extra)
