"""A trial's epochs inside a framework that owns the loop and calls Penstock's callbacks.

Theory of operation. ``trial.epochs()`` is an iterator, so a callback can ask it for the next epoch
just as a loop would. The framework runs in the epoch function's thread, and waits there while the
trial is paused. To end a trial, an exception is raised out of the callback and through the
framework, so the framework's own clean-up runs.
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
    """Maps the passes of a framework's loop to a trial's epochs.

    ``epoch`` is the number of the epoch that is being trained. Before the first ``begin`` it is the
    number of the last epoch that the trial has trained; 0 at the trial's start.
    """

    def __init__(self, trial: EpochTrial) -> None:
        """Load the trial's last state; raise ``UsageError`` if ``trial`` is no ``EpochTrial``."""
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
        """Return the state that was reported with the epoch ``epoch``.

        Returns None at the trial's start, and on a second call: the state may be large, so it is
        not kept in memory here.
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
        """Delete the temporary folders."""
        for delete in self._folders:
            delete()

    @contextmanager
    def _cleaning_up(self) -> Iterator[None]:
        """Delete the folders if an exception ends the trial: the trainer may then end at once."""
        try:
            yield
        except BaseException:
            self.clean_up()
            raise

    def check(self, epoch: int, advice: str) -> None:
        """Raise UsageError if the framework has not resumed, and so is at another ``epoch``."""
        if epoch != self.epoch:
            raise UsageError(f"epoch {epoch} begins where epoch {self.epoch} should: {advice}")

    def report(self, metrics: Mapping[str, Any], state: Any) -> None:
        """Report as ``EpochTrial.report`` does. A resumed trial gets ``state`` from ``take``."""
        with self._cleaning_up():
            self._trial.report(metrics, checkpoint={"epoch": self.epoch, "state": state})


def missing(extra: str, error: ImportError) -> UsageError:
    """Return the error for a framework that cannot be imported, which names ``extra``."""
    return UsageError(f"{error}: pip install 'penstock[{extra}]'", field=extra)
