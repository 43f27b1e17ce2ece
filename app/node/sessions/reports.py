"""Reports to the scheduler about one attempt, under its fence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ....base.errors import BackendError
from ....wire.messages import SegmentTask, dumps
from .link import Link
from .unsent import Unsent

log = logging.getLogger(__name__)

#: The result of a segment, as Flower shows it.
Result = dict[str, Any]


class Reports:
    """The reports of one session."""

    def __init__(
        self,
        task: SegmentTask,
        owner: str,
        link: Link,
        on_beat: Callable[[int], None],
        is_fenced_off: Callable[[], bool],
    ) -> None:
        """``on_beat`` is called after a report's answer: with -1 if fenced off, 1 to cut."""
        self._task = task
        self._owner = owner
        self._link = link
        self._on_beat = on_beat
        self._is_fenced_off = is_fenced_off
        # Without tools the scheduler itself has sampled the parameters.
        self.unsent = Unsent(announces=task.tools is not None)
        #: Number of messages with writes of the trial. Each message carries its own number, so
        #: that the scheduler notices if the broker has lost one.
        self._writings = 0
        #: The system configuration that is tried now, which is to blame if the process dies.
        self.trying: list[Any] = []

    def announce(self) -> None:
        """Announce this trial's unannounced draws to the study's other trials."""
        sampled = self.unsent.take_unannounced()
        if not sampled or self._is_fenced_off():
            return
        try:
            self._link.announce(self._task, self._owner, sampled)
        except BackendError as error:
            log.warning("%s: its parameters were not announced: %s", self._task.task_id, error)

    def written(self) -> None:
        """Report the trial's unsent writes. Call before the report that closes the attempt."""
        if body := self._writing():
            self.report(
                {"kind": "written", "draws_digest": self.unsent.draws_digest} | body, closes=False
            )

    def returned(self, fields: dict[str, Any]) -> None:
        """Report the objective's result, together with its last writes."""
        body = self._writing() | {"writings": self._writings}
        self.report({"kind": "returned"} | body | fields, closes=True)

    def _writing(self) -> dict[str, Any]:
        """Return the trial's writes since the last message, numbered; empty if none."""
        writing = self.unsent.take()
        if not writing:
            return {}
        self._writings += 1
        return {"writing": writing, "number": self._writings}

    def failed(self, failure: str, message: str, traceback: str = "") -> Result:
        """Report that the trial failed. Returns the result that Flower shows."""
        self.written()
        body = {"kind": "failed", "failure": failure, "message": message, "traceback": traceback}
        self.report(body | {"trying": self.trying}, closes=True)
        return {"failed": failure}

    def lost(
        self,
        reason: str,
        *,
        refused: bool = False,
        ranks: Sequence[int] | None = None,
        **signatures: str,
    ) -> Result:
        """Report that the attempt is lost; return the result that Flower shows.

        ``ranks`` are the ranks to blame, as far as is known; None blames this task's rank.
        """
        self.written()
        blamed = [self._task.rank] if ranks is None else [*ranks]
        body = {"kind": "lost", "reason": reason, "refused": refused, "ranks": blamed}
        self.report(body | signatures, closes=True)
        return {"lost": reason}

    def body(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return ``body`` with the fields that every message of the attempt has."""
        task = self._task
        return {**body, "trial": task.trial, "fence": task.fence, "cause": task.id}

    def forward(self, line: dict[str, Any], *, closes: bool) -> None:
        """Report a trainer's message with its own fields, which the scheduler knows."""
        body = {name: value for name, value in line.items() if name != "op"}
        self.report({"kind": line["op"], **body}, closes=closes)

    def report(self, body: dict[str, Any], *, closes: bool) -> None:
        """Send a report under the fence. If it does not count, fence the session off."""
        if self._is_fenced_off():
            return
        sampled = self.unsent.take_unannounced()
        try:
            answer = self._link.report(
                self._task, self._owner, self.body(body), closes=closes, sampled=sampled
            )
        except BackendError as error:
            # The lease expired long ago, so another attempt will come, but the trial stays warm.
            log.warning("%s was given up: %s", self._task.task_id, error)
            answer = "stale"
        if answer == "cut":
            self._on_beat(1)
        elif answer == "stale":
            log.warning("%s: a report came too late: %s", self._task.task_id, dumps(body)[:200])
            self._on_beat(-1)
