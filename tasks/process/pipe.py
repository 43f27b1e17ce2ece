"""A trainer's end of the pipe to its worker: lines of JSON both ways.

Theory of operation. A *run* is a segment in this trainer. Several may be open: one is at work, and
the others wait for their turn in order of arrival. A thread reads the pipe, so that ``cut``,
``stop`` and answers reach a run while it trains, or before. These messages carry the run's trial
and fence. A message for a run that is not open comes too late, and is dropped. A run that is
stopped before its turn ends at once. When the pipe closes, the worker is gone, and the trainer ends
at once.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ...profiling.knobs.knobs import SystemConfig
from ...wire.channel import Channel
from ...wire.messages import Scalar, SegmentTask, number_text
from . import forks
from .energy import Metering
from .lifeline import PIPE_CLOSED, end_all
from .lines import line_of
from .main_thread import Wake, wait_until
from .memory import PeakMemory

if TYPE_CHECKING:
    from .turn import Turn

#: Steps under a system configuration: the configuration, the steps' seconds divided by the
#: default's, the seconds wasted, and their joules divided by the default's (None if not measured).
Window = tuple[SystemConfig, float, float, float | None]

_NO_VALUES: Mapping[str, Any] = MappingProxyType({})


class Abandoned(BaseException):
    """The segment is fenced off, so its results do not count. Passes any ``except Exception``."""


@dataclass(frozen=True, slots=True)
class ReleaseTrial:
    """The trial will not run again, and neither will any trial of ``study``, if that is given."""

    trial: str
    study: str


@dataclass(slots=True)
class Run:
    """One segment in this trainer, and the worker's messages about it since it began."""

    task: SegmentTask
    pipe: Pipe
    #: The identities of a gang's trainers, by rank; empty without a gang.
    members: tuple[str, ...] = ()
    #: True if the segment is to end after the current epoch.
    cut: bool = False
    #: True if the segment is fenced off.
    stop: bool = False
    #: True if the run arrived while other runs were open, so the worker must be told when it
    #: begins.
    queued: bool = False
    #: True once its turn has come.
    begun: bool = False
    #: True if the run was stopped before its turn.
    dropped: bool = False
    #: Its turns, if the trainer's runs take turns; None if this run has all of the trainer's time.
    turn: Turn | None = None
    metering: Metering = field(default_factory=lambda: Metering(None))
    memory: PeakMemory = field(default_factory=PeakMemory)
    #: The latest result, shown with the progress.
    note: str = ""
    #: The reasons why newer states could not be loaded.
    passed_over: list[str] = field(default_factory=list)
    _answers: list[Any] = field(default_factory=list)
    _answered: Wake = field(default_factory=SimpleQueue)
    _reported_at: float = 0.0
    _preparing: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """The trial and fence of this run, which its messages carry."""
        return self.task.trial, self.task.fence

    def say(self, op: str, **fields: Any) -> None:
        self.pipe.say(op, trial=self.task.trial, fence=self.task.fence, **fields)

    def clock(self) -> float:
        """Return the seconds on a clock that stands still while other runs have their turns."""
        return time.perf_counter() if self.turn is None else self.turn.clock()

    def check(self) -> None:
        """Raise ``Abandoned`` if the segment was fenced off; in a forked child, end the process."""
        forks.end_child()
        if self.stop:
            raise Abandoned

    def tick(self, epoch: int, step: int, steps: int) -> None:
        """Call ``check``, and report progress once a second. Called before every training step."""
        self.check()
        now = time.monotonic()
        if self._reported_at == 0.0:
            self._reported_at = now  # short segments report no progress
        elif now - self._reported_at >= 1.0:
            self._reported_at = now
            text = f"epoch {epoch}/{self.task.last} step {step}/{steps}{self.note}"
            self.say("progress", epoch=epoch, step=step, steps=steps, text=text)

    def epoch(
        self,
        epoch: int,
        metrics: dict[str, float],
        *,
        seconds: float,
        state_hash: str = "",
        signature: str = "",
        closes: bool | None = None,
        uri: str = "",
        joules: float | None = None,
        values: Mapping[str, Any] = _NO_VALUES,
    ) -> bool:
        """Report an epoch; return True if the segment has ended.

        The epoch's state is durable if ``uri`` is given. ``closes`` is the decision of a gang, or
        None if there is no gang. ``values`` are further fields of ``EpochReported``, by name.
        """
        if closes is None:
            closes = self.closes(epoch)
        self.note = f" {self.task.metric}={metrics[self.task.metric]:.4g}"
        self.say(
            "epoch",
            epoch=epoch,
            metrics={name: number_text(value) for name, value in metrics.items()},
            state_hash=state_hash,
            signature=signature,
            seconds=seconds,
            closes=closes,
            uri=uri,
            joules=joules,
            memory=self.memory.bytes(),
            **values,
        )
        return closes

    def probing(self, config: SystemConfig) -> None:
        """Tell the worker which configuration the next steps try; () for none.

        If the process dies, this shows which configuration is to blame.
        """
        self.say("trying", config=config)

    def windows(
        self,
        found: Sequence[Window],
        failed: Sequence[tuple[SystemConfig, str]],
    ) -> None:
        """Report windows, and the configurations that failed, each with the reason."""
        self.say("windows", windows=found, failed=failed)

    def closes(self, epoch: int) -> bool:
        """Return True if the segment ends after ``epoch``, as far as this member knows."""
        until = self.task.until
        return self.cut or epoch >= self.task.last or (until is not None and time.time() >= until)

    def preparing(self) -> None:
        """Tell the worker that code and data are being loaded, if epochs have a time limit."""
        if self.task.epoch_timeout is not None:
            self._preparing = True
            self.say("preparing")

    def prepared(self) -> None:
        """Tell the worker that the segment's first epoch begins now, after ``preparing``."""
        if self.turn is not None:
            self.turn.begin_anew()
        if self._preparing:
            self._preparing = False
            self.say("prepared")

    def note_skipped(self, error: Exception) -> None:
        """Note that the newest state could not be loaded; there may be an older one."""
        self.passed_over.append(str(error))
        print(f"penstock: {error}", file=sys.stderr)  # noqa: T201 - its log

    def replays(self, first: int, last: int) -> None:
        """Report that the accepted epochs ``first`` to ``last`` are computed again, and why."""
        reason = "; ".join(self.passed_over)
        if reason:
            follows = "it begins again" if first == 1 else "an older state is used"
            reason = f"{reason}; {follows}"
            print(f"penstock: {follows}", file=sys.stderr)  # noqa: T201 - its log
        self.say("replayed", first=first, last=last, reason=reason)

    def remarks(self, text: str) -> None:
        """Write a remark for the user to this trial's log and story."""
        print(f"penstock: {text}", file=sys.stderr)  # noqa: T201 - its log
        self.say("remarked", text=text)

    def wait(self, what: str, seconds: float) -> None:
        """Wait for ``seconds``, or until a cut; this does not count as an epoch's time.

        ``what`` says what the run waits for. Raises ``Abandoned`` as ``check`` does.
        """
        self.say("waiting", text=what)
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.cut:
            self.check()
            time.sleep(0.05)
            if self.turn is not None:
                self.turn.pass_on()

    def replaying(self, epoch: int) -> None:
        """Report that an epoch is being computed again, which restarts the worker's time limit."""
        self._reported_at = time.monotonic()
        text = f"replaying epoch {epoch} of {self.task.first - 1}"
        self.say("progress", epoch=epoch, step=0, steps=0, text=text)

    def suggest(self, name: str, distribution: str) -> Scalar:
        """Return the sampler's value for one parameter. Raises as ``ask`` does."""
        value: Scalar = self.ask("suggest", name=name, distribution=distribution)
        return value

    def request(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the scheduler's answer to a command about the study. Raises as ``ask`` does.

        Raises ``UsageError`` if the scheduler refuses the command.
        """
        answer: dict[str, Any] = self.ask("request", command=kind, body=body)
        if not answer.get("ok"):
            raise UsageError(str(answer.get("error")))
        return answer

    def history(self, after: str) -> tuple[str, list[dict[str, Any]]]:
        """Return the id of the study's last update, and all its updates after the id ``after``."""
        last, texts = self.ask("history", after=after)
        return str(last), [update for text in texts for update in json.loads(text)]

    def ask(self, op: str, **fields: Any) -> Any:
        """Return the worker's answer to a question.

        Raises ``Abandoned`` if the segment is fenced off meanwhile.
        """
        self._answers.clear()
        self.say(op, **fields)
        raised = wait_until(lambda: self.stop or bool(self._answers), self._answered)
        self.check()
        if raised is not None:
            raise raised
        return self._answers[0]

    def answer(self, value: Any) -> None:
        self._answers.append(value)
        self._answered.put(None)


#: Messages of the pipe that the trainer must carry out.
Work = Run | ReleaseTrial


class Pipe:
    """The socket to the worker. ``inbox`` holds the work for this trainer, in order of arrival."""

    def __init__(self, sock: socket.socket, metering: Metering | None = None) -> None:
        """Wrap ``sock``. ``metering`` measures this process; None if nothing is measured."""
        self.metering = metering or Metering(None)
        self._memory = PeakMemory()
        self._channel = Channel(sock)
        forks.keep_from_children(sock)
        self._sending = threading.Lock()
        self._open: dict[tuple[str, int], Run] = {}
        self._beginning = threading.Lock()
        self.inbox: SimpleQueue[Work] = SimpleQueue()

    def say(self, op: str, **fields: Any) -> None:
        """Send a message to the worker. Raises ``TrialFailed`` if a field cannot be sent."""
        forks.end_child()
        line = line_of({"op": op, **fields})
        try:
            with self._sending:
                self._channel.send_line(line)
        except OSError as error:
            _end_if_closed_here(error)
            end_all()

    def listen(self) -> None:
        """Start the reader thread."""
        threading.Thread(target=self._read, name="pipe", daemon=True).start()

    def _read(self) -> None:
        try:
            self._take(iter(partial(self._channel.line, None), None))
        except EOFError:
            pass  # a worker that is gone
        except OSError as error:
            _end_if_closed_here(error)  # else a killed worker has reset it; treat it as closed
        except Exception:
            traceback.print_exc()
        finally:
            # Other threads may be at work, but without a worker the trainer has no purpose.
            end_all()

    def begin(self, run: Run) -> bool:
        """Begin a run whose turn has come; return True if it is still wanted."""
        with self._beginning:
            run.begun = True
        if run.dropped:
            return False
        if run.queued:
            run.say("begun")
        return True

    def end(self, run: Run) -> None:
        """Close the run: later messages for it are dropped."""
        with self._beginning:
            if self._open.get(run.key) is run:
                del self._open[run.key]

    def _take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            message = json.loads(line)
            match message["op"]:
                case "run":
                    self._open_run(message)
                case "share":
                    self.metering.share(message["trials"])
                case "release":
                    self.inbox.put(ReleaseTrial(message["trial"], message["study"]))
                case op:
                    run = self._open.get((message["trial"], message["fence"]))
                    if run is not None:
                        self._tell(run, op, message)

    def _open_run(self, message: dict[str, Any]) -> None:
        run = Run(
            SegmentTask.model_validate(message["task"]),
            self,
            tuple(message["members"]),
            queued=message["queued"],
            metering=self.metering,
            memory=self._memory,
        )
        for other in list(self._open.values()):
            if other.task.trial == run.task.trial and other.task.fence < run.task.fence:
                self._stop(other)  # the worker's message about it may come later
        self._open[run.key] = run
        self.inbox.put(run)

    def _tell(self, run: Run, op: str, message: dict[str, Any]) -> None:
        match op:
            case "cut":
                run.cut = True
            case "stop":
                self._stop(run)
            case "answer":
                run.answer(message["value"])

    def _stop(self, run: Run) -> None:
        run.stop = True
        run.answer(None)  # wakes a function that waits for a suggestion
        with self._beginning:
            run.dropped = not run.begun
        if run.dropped:
            self.end(run)
            run.say("stopped")
        elif run.turn is not None:
            run.turn.hurry()


def _end_if_closed_here(error: OSError) -> None:
    """End this process with the status ``PIPE_CLOSED`` if code in it has closed the socket."""
    if error.errno in (errno.EBADF, errno.ENOTSOCK):
        os._exit(PIPE_CLOSED)
