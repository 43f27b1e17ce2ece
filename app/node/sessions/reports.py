"""A worker's reports to the scheduler about one attempt, sent under the attempt's fence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ....base.errors import BackendError
from ....wire.messages import SegmentTask, dumps
from .link import Link
from .unsent import Unsent

log = logging.getLogger(__name__)

#: The result of a segment, which Flower (Celery's monitor) shows.
Result = dict[str, Any]


class Reports:
    """The reports of one session, which runs one attempt."""

    def __init__(
        self,
        task: SegmentTask,
        owner: str,
        link: Link,
        on_beat: Callable[[int], None],
        is_fenced_off: Callable[[], bool],
    ) -> None:
        """Create the reports of the attempt in ``task``, which ``owner`` has claimed.

        ``on_beat`` is called if a report's answer changes the session: with -1 if the attempt is
        fenced off, and with 1 if the segment is to be cut (ended after its current epoch).
        ``is_fenced_off`` tells whether the attempt no longer counts.
        """
        self._task = task
        self._owner = owner
        self._link = link
        self._on_beat = on_beat
        self._is_fenced_off = is_fenced_off
        # Without tools the scheduler itself has sampled the parameters.
        self.unsent = Unsent(announces=task.tools is not None)
        #: The number of messages with writes of the trial. Each message carries its number, so that
        #: the scheduler notices if the broker has lost a message.
        self._writings = 0
        #: The system configuration that the trainer is trying. If the process dies, this
        #: configuration is blamed.
        self.trying: list[Any] = []

    def announce(self) -> None:
        """Announce the parameters that the trial has drawn to the study's other trials.

        Only parameters that were not announced yet are sent. A failure is logged.
        """
        sampled = self.unsent.take_unannounced()
        if not sampled or self._is_fenced_off():
            return
        try:
            self._link.announce(self._task, self._owner, sampled)
        except BackendError as error:
            log.warning("%s: its parameters were not announced: %s", self._task.task_id, error)

    def written(self) -> None:
        """Report the trial's unsent writes. Call this before the report that closes the attempt."""
        if body := self._writing():
            self.report(
                {"kind": "written", "draws_digest": self.unsent.draws_digest} | body, closes=False
            )

    def returned(self, fields: dict[str, Any]) -> None:
        """Report the objective's result, together with the objective's last writes."""
        body = self._writing() | {"writings": self._writings}
        self.report({"kind": "returned"} | body | fields, closes=True)

    def _writing(self) -> dict[str, Any]:
        """Return the trial's writes since the last message, with the message's number.

        The result is empty if there are no new writes.
        """
        writing = self.unsent.take()
        if not writing:
            return {}
        self._writings += 1
        return {"writing": writing, "number": self._writings}

    def failed(self, failure: str, message: str, traceback: str = "") -> Result:
        """Report that the trial failed. Return the result that Flower shows.

        ``failure`` is the kind of failure, one of ``scheduler.model.retry.KINDS``.
        """
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
        """Report that the attempt is lost. Return the result that Flower shows.

        ``refused`` is True if the trainer or its environment cannot run the segment. ``ranks`` are
        the members of the gang to blame. None blames this task's own rank, and an empty sequence
        blames none.
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
        """Send a trainer's message to the scheduler as a report, with the message's own fields.

        The scheduler knows the fields of each kind of message.
        """
        body = {name: value for name, value in line.items() if name != "op"}
        self.report({"kind": line["op"], **body}, closes=closes)

    def report(self, body: dict[str, Any], *, closes: bool) -> None:
        """Send a report under the fence, and handle the broker's answer.

        If the report no longer counts, or the broker stays away, the session is fenced off.
        """
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
