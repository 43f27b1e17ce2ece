"""A trial's hyperparameters as its code may read them: the first values, and the present ones.

Theory of operation. A hyperparameter that changes by ``Steps`` has several *pieces*, each in force
from some epoch on. Code that reads a later piece before it is in force could let it influence
earlier epochs. Then trials that differ only in that piece would differ before it is in force, too.
So ``params`` always has the values in force from the start, even if a trial that resumes is made
again in a later epoch. ``now`` returns the value in force in the current epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.errors import TrialFailed
from ...base.pieces import in_force, later_piece


class Pieces:
    """The pieces of one trial's hyperparameters, and which of them are in force."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Make the pieces of ``params``, the whole configuration."""
        self.all = dict(params)
        #: The values in force from the start.
        self.start = in_force(self.all, 0)
        self._now = self.start

    def begin(self, done: int) -> None:
        """Put the values into force that apply in epoch ``done`` + 1."""
        self._now = in_force(self.all, done)

    def now(self, name: str) -> Any:
        """Return the value in force in the current epoch.

        Before the first epoch that is trained here, that is the value from the start. Raises
        ``KeyError``, and ``TrialFailed`` as ``refuse`` does.
        """
        if name not in self._now:
            self.refuse(name)
        return self._now[name]

    def refuse(self, entry: str) -> None:
        """Raise ``TrialFailed`` (inexact) if ``entry`` is a later piece of this trial."""
        later = later_piece(entry, self.all)
        if later is not None and entry in self.all:
            name, start = later
            raise TrialFailed(
                "inexact",
                f"the code reads {entry!r}, which must not influence epochs before {start + 1}:"
                f" read the value in force, `{name} = self.now({name!r})`, in loss() (in an epoch"
                f" function `trial.now({name!r})` in the loop), which changes at epoch {start + 1}",
            )


class StartParams(dict[str, Any]):
    """The values in force from the start, as a dict. ``[...]`` refuses names of later pieces."""

    def __init__(self, pieces: Pieces) -> None:
        super().__init__(pieces.start)
        self._pieces = pieces

    def __missing__(self, name: str) -> Any:
        self._pieces.refuse(name)
        raise KeyError(name)
