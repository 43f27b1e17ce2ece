"""Draws and writes of a session's trial that the scheduler has not been told yet.

A trainer sends each parameter when it is drawn, so that none is lost if the trainer dies. A message
to the scheduler and a commit for each parameter would be too much. So parameters wait here for the
next report, which most often is that of the trial's result, but no longer than ``SEND_AFTER``.

The study's other trials learn at once which parameters were sampled: a sampler that does not know
which configurations are running tries similar ones.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ....tasks.objectives.pending import SEND_AFTER, PendingWrite
from ....wire.messages import MAX_MESSAGE, dumps


class Unsent:
    """Draws and writes to be sent, and the time by which they must be."""

    def __init__(self, *, announces: bool) -> None:
        """``announces``: the study's other trials are told which parameters were sampled."""
        self._announces = announces
        self._writing = PendingWrite()
        self._size = 0
        #: The latest time to send (monotonic seconds); 0 if there is nothing to send.
        self.due = 0.0
        #: The digest of the trial's draws, the last added ones included.
        self.draws_digest = ""
        #: Parameters of which the other trials were not told yet, in the form of updates.
        self.unannounced: list[tuple[str, str, float | str]] = []

    def add(self, writing: Mapping[str, Any], draws_digest: str) -> None:
        """Add writes of the trial. ``draws_digest`` is the digest of its draws after these."""
        self._writing.add(writing)
        self.draws_digest = draws_digest
        if self._announces:
            self.unannounced += [
                (name, distribution, internal)
                for name, _, distribution, internal in writing.get("suggestions", ())
            ]
        self._size += len(dumps(writing))
        if self._size > MAX_MESSAGE:
            self.due = time.monotonic()
        elif not self.due:
            self.due = time.monotonic() + SEND_AFTER

    def take_unannounced(self) -> list[tuple[str, str, float | str]]:
        """Take the parameters that are not yet announced to the other trials."""
        parameters, self.unannounced = self.unannounced, []
        return parameters

    def take(self) -> dict[str, Any]:
        """Take all unsent writes in the form of messages; none is left then."""
        self._size, self.due = 0, 0.0
        return self._writing.take()
