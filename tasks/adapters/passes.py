"""A trial's epochs inside of a framework that owns the loop, where only its callbacks are ours.

Theory of operation. ``trial.epochs()`` is an iterator, so that a callback may ask it for the next
epoch as well as a loop would: the framework's thread is the epoch function's, and waits there while
the trial is paused. A trial that is not to go on is unwound out of the callback, through the
framework, whose own clean-up runs.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...profiling.base.errors import UsageError
from ..contracts.contract import EpochTrial


class Passes:
    """The passes of a framework's loop as a trial's epochs.

    ``epoch`` is the number of the epoch that the trial goes on after; 0 where it begins.
    """

    def __init__(self, trial: EpochTrial) -> None:
        """Raises ``UsageError`` for what is not the trial of an epoch function."""
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
        """What was reported with that epoch, None where the trial begins; once, it may be large."""
        state, self._state = self._state, None
        return state

    def begin(self) -> int:
        """The epoch that begins, counted from 1, once the trial may train it."""
        with self._tidied():
            self.epoch = next(self._epochs)
        return self.epoch

    def folder(self) -> str:
        """A new temporary folder on this node, until ``tidy``."""
        folder = tempfile.mkdtemp(prefix="penstock-")
        self._folders.append(weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True))
        return folder

    def tidy(self) -> None:
        """Delete the folders."""
        for delete in self._folders:
            delete()

    @contextmanager
    def _tidied(self) -> Iterator[None]:
        """The trial may be unwound here, and the trainer end without more ado."""
        try:
            yield
        except BaseException:
            self.tidy()
            raise

    def check(self, epoch: int, advice: str) -> None:
        """Refuse a framework that is at another ``epoch``: it did not go on from the state."""
        if epoch != self.epoch:
            raise UsageError(f"epoch {epoch} begins where {self.epoch} should: {advice}")

    def report(self, metrics: Mapping[str, Any], state: Any) -> None:
        """As ``EpochTrial.report``; ``state`` is what ``take`` gives."""
        with self._tidied():
            self._trial.report(metrics, checkpoint={"epoch": self.epoch, "state": state})


def missing(extra: str, error: ImportError) -> UsageError:
    """What to say where a framework cannot be imported."""
    return UsageError(f"{error}: pip install 'penstock[{extra}]'", field=extra)
