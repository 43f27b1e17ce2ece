"""One segment in one trainer: the messages from the claim to the report that closes the attempt.

A session ends in one of these ways:

- The trainer sends a message that closes the segment: the closing epoch, ``widths``, ``returned``,
  ``failed``, ``refused``, ``broken`` or ``stopped``.
- The trainer dies, or it stands still.
- The trainer's start, or an epoch, exceeds its time limit.
- The session is *fenced off*, because its attempt no longer counts. The trainer is told to stop. If
  the trainer has not stopped after ``STOP_GRACE`` and the time of one step, it is killed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ....base.errors import BackendError
from ....wire.messages import SegmentTask, dumps
from ...extensions import of_ends
from ...host.stopped import Stillness
from ..launching.launch import CannotStart
from .conversations import TrainerGone
from .link import Link
from .reports import Reports, Result
from .time_limit import START_TIMEOUT, TimeLimit
from .trainer import Trainer

log = logging.getLogger(__name__)

#: Seconds after which a trainer that was told to stop is killed. The time of a step is added.
STOP_GRACE = 2.0
#: Seconds after which a trainer that stands still is replaced. The limit applies to a trainer that
#: is not ready yet, and to a member of a gang, because the gang's other members wait for it.
STILL_LIMIT = 15.0
#: Seconds that a member of a broken gang waits before it reports. Another member may know the
#: reason and should report first.
BROKEN_GRACE = 0.5
#: The longest time in seconds between two checks of the time limits.
POLL_INTERVAL = 0.5
#: Seconds for which an announcement waits, so that it can be sent with more parameters or a report.
LINGER = 0.001


class Session:
    """The session of one segment.

    The slot's thread calls ``run``, and the keeper's thread calls ``on_beat``.
    """

    def __init__(
        self,
        task: SegmentTask,
        text: str,
        owner: str,
        link: Link,
        *,
        show: Callable[[str], None],
        durable: Callable[[Trainer, dict[str, Any]], None],
    ) -> None:
        self.task = task
        self.run_key = (task.trial, task.fence)
        self.owner = owner
        self.trainer: Trainer | None = None
        self.fenced_off = False
        #: The identities of a gang's trainers by rank. Empty if the segment runs on one device.
        self.members: tuple[str, ...] = ()
        #: The time (monotonic, in seconds) at which the claim was granted.
        self.claimed_at = time.monotonic()
        self._text = text
        self._link = link
        self._show = show
        self._durable = durable
        # Guards the keeper's messages to the trainer. Once the segment is over the keeper must send
        # none, since the trainer may already run the next segment.
        self._lock = threading.Lock()
        self._over = False
        self._cut = False
        # True while the run waits behind others in the trainer.
        self._waiting = False
        self._stop_by = 0.0
        # The time on the run's own clock at which the trainer was told of the run.
        self._sent_at = 0.0
        # Seconds from the claim until the trainer was told of the run.
        self._before = 0.0
        self._limit = TimeLimit(task, self._clock)
        self._stillness = Stillness()
        self._reports = Reports(task, owner, link, self.on_beat, lambda: self.fenced_off)

    def on_beat(self, beat: int) -> None:
        """Handle the broker's answer to a renewal of the lease.

        ``beat`` is -1 if the attempt is fenced off, 1 if the segment is to be cut (ended after its
        current epoch), and 0 otherwise.
        """
        with self._lock:
            if self._over or self.fenced_off:
                return
            if beat < 0:
                log.warning("%s is fenced off", self.task.task_id)
                self.fenced_off = True
                self._stop_by = time.monotonic() + STOP_GRACE + self._limit.step_seconds
                if self.trainer:
                    self._tell(self.trainer, "stop")
            elif beat > 0 and not self._cut:
                self._cut = True
                if self.trainer:
                    self._tell(self.trainer, "cut")

    def _tell(self, trainer: Trainer, op: str, **fields: Any) -> None:
        """Send the trainer a message about this session's run."""
        trial, fence = self.run_key
        trainer.send({"op": op, "trial": trial, "fence": fence, **fields})

    def run(self, trainer: Trainer) -> Result:
        """Run the segment in ``trainer``. Return the result that Flower shows."""
        self._waiting = trainer.conversations.begin(self.run_key)
        try:
            return self._run(trainer)
        except TrainerGone as error:
            return self._trainer_gone(trainer, error)
        finally:
            with self._lock:
                self._over = True
            trainer.conversations.end(self.run_key)

    def without_trainer(self, why: OSError) -> Result:
        """Report that no trainer could be started, because of ``why``.

        Return the result for Flower.
        """
        if self._link.closing.is_set():
            return self._reports.lost("its worker was stopped")
        if isinstance(why, CannotStart):
            return self._reports.lost(str(why), refused=True)
        return self._reports.lost(f"its trainer cannot be started: {why}")

    def _run(self, trainer: Trainer) -> Result:
        with self._lock:
            if self.fenced_off:
                return {"dropped": "fenced off"}
            self.trainer = trainer
            self._before = time.monotonic() - self.claimed_at
            self._sent_at = trainer.seconds(self.task.fence)
            trainer.causes[self.task.trial] = self.task.id
            members = dumps(self.members) if self.members else "[]"
            queued = "true" if self._waiting else "false"
            trainer.send_text(
                f'{{"op":"run","members":{members},"queued":{queued},"task":{self._text}}}'
            )
            if self._cut:
                self._tell(trainer, "cut")
        if not self._waiting:
            self._limit.begin(0.0 if trainer.ready else START_TIMEOUT)
        while True:
            line = trainer.conversations.next(
                self.run_key, self._receive_timeout(), lambda line: self._durable(trainer, line)
            )
            if line is None:
                self._reports.announce()
            result = None if line is None else self._handle(trainer, line)
            # Also checked after each message, so that a fenced off trainer that sends without a
            # pause is ended.
            if result is None and (line is None or self.fenced_off):
                result = self._overdue(trainer)
            if result is not None:
                return result
            if self._reports.unsent.due and time.monotonic() >= self._reports.unsent.due:
                self._reports.written()

    # -- time ------------------------------------------------------------------------------------

    def _clock(self) -> float:
        """Return the time of a clock that stands still while other trials have their turns."""
        return self.trainer.seconds(self.task.fence) if self.trainer else time.monotonic()

    def _receive_timeout(self) -> float:
        if self._reports.unsent.unannounced:
            return LINGER
        timeout = POLL_INTERVAL
        for deadline in (self._stop_by or self._limit.due, self._reports.unsent.due):
            if deadline:
                timeout = min(timeout, deadline - time.monotonic())
        return timeout

    def _overdue(self, trainer: Trainer) -> Result | None:
        if self.fenced_off:
            # A trainer that is still starting is not killed, because its successor would only
            # repeat the imports. The trainer reads the stop message after its imports.
            if not trainer.starting:
                if time.monotonic() < self._stop_by:
                    return None
                if not self._waiting and trainer.works_for(self.task.fence):
                    trainer.end()
            return {"dropped": "fenced off"}
        if self._stands_still(trainer):
            result = self._reports.lost(f"its trainer has stood still for {STILL_LIMIT:g} s")
            trainer.end()  # may take long, and others wait for the report
            return result
        if not self._limit.is_over(started=trainer.ready):
            return None
        self._stop_overdue(trainer)
        if not trainer.ready:
            where = f" in {trainer.environment}" if trainer.environment else ""
            words = f"its trainer{where} was not ready after {START_TIMEOUT:g} s"
            return self._reports.lost(words, refused=bool(where))
        return self._reports.failed("timeout", str(self._limit))

    def _stands_still(self, trainer: Trainer) -> bool:
        """Return True if the trainer is alive but is stopped or hangs.

        The user's code may sleep for long, and a user may stop a trainer to inspect it. So a
        trainer that is ready counts as standing still only if other members of its gang wait for
        it.
        """
        if self._waiting or (trainer.ready and len(self.task.queues) == 1):
            return False
        # If another program starts the trainer, the trainer's own process is not known yet.
        asleep = not trainer.ready and not trainer.environment
        return self._stillness.seconds(trainer.pid, asleep=asleep) > STILL_LIMIT

    def _stop_overdue(self, trainer: Trainer) -> None:
        """Stop this session's run.

        If the trainer has only this run, or does not obey, end the trainer.
        """
        if trainer.takes_turns and trainer.ready:
            self._tell(trainer, "stop")
            until = time.monotonic() + STOP_GRACE
            while trainer.works_for(self.task.fence) and time.monotonic() < until:
                time.sleep(POLL_INTERVAL / 10)
            if not trainer.works_for(self.task.fence):
                return
        trainer.end()

    # -- what the trainer says -------------------------------------------------------------------

    def _handle(self, trainer: Trainer, line: dict[str, Any]) -> Result | None:
        op = line.get("op")
        if op == "ready":
            if trainer.versions and self.task.rank == 0:
                words = f"in {trainer.environment}, which has {trainer.versions}"
                self._reports.report({"kind": "remarked", "text": words}, closes=False)
            if not self._waiting:
                self._limit.begin()
            return None
        try:
            return self._HANDLERS.get(str(op), Session._on_reported)(self, trainer, line)
        except _MALFORMED as error:
            raise trainer.malformed(line) from error

    def _on_begun(self, trainer: Trainer, line: dict[str, Any]) -> None:
        """Start the time limit, because all runs before this run are over."""
        self._waiting = False
        self._limit.begin()

    def _on_epoch(self, trainer: Trainer, line: dict[str, Any]) -> Result | None:
        closes = bool(line["closes"])
        epoch = int(line["epoch"])
        self._limit.epoch_over(epoch)
        if self.task.rank == 0:
            self._reports.written()
            claimed = round(self._before + self._clock() - self._sent_at, 6)
            report = {**line, "holder": trainer.identity, "claimed": claimed}
            self._reports.forward(report, closes=closes)
        if not closes:
            return None
        metric = self.task.metric
        return {"epoch": epoch, metric: line["metrics"].get(metric)}

    def _on_progress(self, trainer: Trainer, line: dict[str, Any]) -> None:
        self._limit.step(int(line["epoch"]), int(line["step"]))
        self._show(str(line["text"]))

    def _on_noted(self, trainer: Trainer, line: dict[str, Any]) -> None:
        """Forward the message to the scheduler if its sender is the first member of the gang."""
        if self.task.rank == 0:
            self._reports.forward(line, closes=False)

    def _on_probing(self, trainer: Trainer, line: dict[str, Any]) -> None:
        self._reports.trying = list(line["config"])

    def _on_widths(self, trainer: Trainer, line: dict[str, Any]) -> Result:
        if self.task.rank == 0:
            self._reports.forward(line, closes=True)
        return {"measured": [width for width, _ in line["seconds"]]}

    def _on_reported(self, trainer: Trainer, line: dict[str, Any]) -> None:
        """Forward the report of an extension's hook in the trainer.

        Raises ValueError if no extension has reports of this kind.
        """
        if not any(line["op"] in kinds for kinds in of_ends("node", "REPORTED")):
            raise ValueError("no extension reports that")
        self._reports.forward(line, closes=False)

    def _on_waiting(self, trainer: Trainer, line: dict[str, Any]) -> None:
        self._limit.begin()  # the user's code does not cause this wait
        self._show(str(line["text"]))

    def _on_preparing(self, trainer: Trainer, line: dict[str, Any]) -> None:
        self._limit.loading()

    def _on_prepared(self, trainer: Trainer, line: dict[str, Any]) -> None:
        self._limit.loaded()

    def _on_suggest(self, trainer: Trainer, line: dict[str, Any]) -> Result | None:
        if self.fenced_off:
            return None
        question = {"kind": "suggest", "name": line["name"], "distribution": line["distribution"]}
        answer = self._answer_of(trainer, question)
        if answer is not None and "error" in answer:
            self._tell(trainer, "stop")  # its objective waits for the value
            return self._reports.failed(
                "exception", f"no value for {line['name']!r}: {answer['error']}"
            )
        if answer is not None:
            self._tell(trainer, "answer", value=answer["value"])
        return None

    def _on_request(self, trainer: Trainer, line: dict[str, Any]) -> None:
        self._reports.written()  # the answer may depend on it
        question = {"kind": "request", "command": line["command"], "body": line["body"]}
        if not self.fenced_off and (answer := self._answer_of(trainer, question)) is not None:
            self._tell(trainer, "answer", value=answer)

    def _on_history(self, trainer: Trainer, line: dict[str, Any]) -> None:
        """Answer the trainer with the changes of the study's trials, which are on the broker.

        If the broker has lost some of the changes, the scheduler is asked for the whole history. An
        objective must not draw from an incomplete history, so the attempt ends if the history
        cannot be completed.
        """
        question = {"kind": "request", "command": "history", "body": {}}
        while not self.fenced_off:
            try:
                history = self._link.history(self.task.study, str(line["after"]))
            except BackendError as error:
                log.warning("the history of %s cannot be read: %s", self.task.study, error)
                self.on_beat(-1)
                return
            if history is not None:
                self._tell(trainer, "answer", value=history)
                return
            answer = self._answer_of(trainer, question)
            if answer is not None and not answer.get("ok"):
                log.warning("the history of %s is refused: %s", self.task.study, answer)
                self.on_beat(-1)

    def _on_written(self, trainer: Trainer, line: dict[str, Any]) -> None:
        self._reports.unsent.add(line["writing"], str(line.get("draws_digest", "")))

    def _answer_of(self, trainer: Trainer, question: dict[str, Any]) -> dict[str, Any] | None:
        """Return the scheduler's answer to ``question``.

        Returns None if the attempt no longer counts, or if the broker stays away.
        """
        try:
            answer = self._link.ask(
                self.task,
                self.owner,
                self._reports.body(question),
                still=lambda: trainer.alive and not self.fenced_off,
            )
        except BackendError as error:
            log.warning("%s was given up: %s", self.task.task_id, error)
            answer = None
        self._limit.begin()
        if answer is None:
            self.on_beat(-1)
        return answer

    def _on_returned(self, trainer: Trainer, line: dict[str, Any]) -> Result:
        if self.task.rank:
            return {"returned": line["value"]}
        tied = ("draws_digest", "reported")
        names = ("value", "further", "constraints", "pruned", "unasked", *tied)
        fields = {name: line[name] for name in names if name in line}
        self._reports.returned({"left": trainer.children} | fields)
        trainer.causes.pop(self.task.trial, None)  # the trainer keeps nothing of the trial
        return {"returned": line["value"]}

    def _on_failed(self, trainer: Trainer, line: dict[str, Any]) -> Result:
        return self._reports.failed(str(line["kind"]), str(line["message"]), str(line["traceback"]))

    def _on_refused(self, trainer: Trainer, line: dict[str, Any]) -> Result:
        return self._reports.lost(
            str(line["reason"]),
            refused=True,
            signature=str(line.get("signature", "")),
            expected=str(line.get("expected", "")),
        )

    def _on_broken(self, trainer: Trainer, line: dict[str, Any]) -> Result:
        """Report that the gang is broken, after a pause.

        In the pause, the member that knows the reason may report first.
        """
        self._link.closing.wait(BROKEN_GRACE)
        ranks = [int(rank) for rank in line["ranks"]]
        return self._reports.lost(str(line["reason"]), ranks=ranks)

    def _on_stopped(self, trainer: Trainer, line: dict[str, Any]) -> Result:
        return (
            {"dropped": "fenced off"}
            if self.fenced_off
            else self._reports.lost("its trainer stopped")
        )

    _HANDLERS: dict[str, Callable[[Session, Trainer, dict[str, Any]], Result | None]] = {  # noqa: RUF012 - a table, never changed
        "begun": _on_begun,
        "epoch": _on_epoch,
        "preparing": _on_preparing,
        "prepared": _on_prepared,
        "progress": _on_progress,
        "remarked": _on_noted,
        "replayed": _on_noted,
        "trying": _on_probing,
        "widths": _on_widths,
        "waiting": _on_waiting,
        "suggest": _on_suggest,
        "request": _on_request,
        "history": _on_history,
        "written": _on_written,
        "returned": _on_returned,
        "failed": _on_failed,
        "refused": _on_refused,
        "broken": _on_broken,
        "stopped": _on_stopped,
    }

    # -- what the scheduler is told --------------------------------------------------------------

    def _trainer_gone(self, trainer: Trainer, how: TrainerGone) -> Result:
        if self._link.closing.is_set():
            return self._reports.lost("its worker was stopped")
        for_another = self._waiting or (trainer.ready and not trainer.works_for(self.task.fence))
        if how.unfit or how.lost or for_another:
            addition = ", while it ran another trial" if for_another and not how.unfit else ""
            ranks = None if how.unfit else ()
            return self._reports.lost(f"{how}{addition}", refused=how.unfit, ranks=ranks)
        if not trainer.ready:
            return self._reports.lost(f"its trainer did not start: {how}")
        if how.error:
            words = f"its trainer ended with {how.error}"
            return self._reports.failed(
                "exit", f"{words}: did your code change what Python itself needs?"
            )
        if how.code is not None:
            words = f"os._exit({how.code}), or a library that does so, ended the process"
            return self._reports.failed("exit", f"{words}: raise or return instead")
        return self._reports.failed("died", str(how))


#: The exceptions that a message raises if its fields are missing or have wrong types.
_MALFORMED = (
    *(KeyError, TypeError, ValueError, AttributeError, OverflowError),
    RecursionError,  # a deeply nested message could be read, but is written deeper in the stack
)
