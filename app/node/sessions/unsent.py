"""Draws and writes of a session's trial that the scheduler has not received yet.

A trainer sends each parameter to the worker when it is drawn, so that no parameter is lost if the
trainer dies. A message to the scheduler and a commit for each parameter would cost too much. So
parameters wait in the worker for the next report, usually the report with the trial's result, but
no longer than ``SEND_AFTER``.

The study's other trials are told at once which parameters were sampled. A sampler that does not
know which configurations are running would propose similar configurations.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ....tasks.objectives.pending import SEND_AFTER, PendingWrite
from ....wire.messages import MAX_MESSAGE, dumps


class Unsent:
    """The draws and writes that wait to be sent, and the time by which they must be sent."""

    def __init__(self, *, announces: bool) -> None:
        """Create an object without draws or writes.

        ``announces`` is True if sampled parameters are announced to the study's other trials.
        """
        self._announces = announces
        self._writing = PendingWrite()
        self._size = 0
        #: The latest time (monotonic, in seconds) to send the writes. 0 if there is nothing to
        #: send.
        self.due = 0.0
        #: The digest of all draws of the trial, including the draws that were added last.
        self.draws_digest = ""
        #: The parameters that were not announced to the other trials yet, in the form of updates.
        self.unannounced: list[tuple[str, str, float | str]] = []

    def add(self, writing: Mapping[str, Any], draws_digest: str) -> None:
        """Add writes of the trial.

        ``draws_digest`` is the digest of the trial's draws after these writes.
        """
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
        """Remove and return the parameters that were not announced to the other trials yet."""
        parameters, self.unannounced = self.unannounced, []
        return parameters

    def take(self) -> dict[str, Any]:
        """Remove and return all unsent writes, in the form in which messages carry writes."""
        self._size, self.due = 0, 0.0
        return self._writing.take()
