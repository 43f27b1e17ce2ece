"""A trainer process, in which training runs, as its worker sees it.

Worker and trainer exchange JSON messages, one per line, over a socket pair. The trainer's output
goes to a log file. Other trainers connect to the trainer at its *identity*, ``address:port:token``.
The worker makes the sockets, so the identity is known before the process runs. So the worker can
claim a segment for a member of a gang before the member's trainer has started.

The launcher process (``app.node.launching.process``) starts the trainer, in the study's environment
if the study has one.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from ....base.errors import UsageError
from ....profiling.devices.device import Device
from ....tasks.contracts import by_value
from ....tasks.contracts.import_names import imported_names
from ....tasks.process.lifeline import PIPE_CLOSED
from ....tasks.trainer import variables as names
from ....wire.channel import Channel, TooLong
from ....wire.identity import Identity, listen
from ....wire.messages import (
    MAX_MESSAGE,
    Forged,
    SegmentTask,
    dumps,
    parse,
)
from ... import extensions
from ...host.launcher import count_children, is_below
from ...host.logs import last_error, open_log, uncaught
from ...host.pidfd import Pidfd
from ..launching.client import TrainerLauncher
from ..launching.launch import CannotStart, Launch
from ..launching.variables import environment
from . import endings
from .conversations import Conversations, TrainerGone

log = logging.getLogger(__name__)

#: The exit status of Python after an uncaught exception.
UNCAUGHT = 1
#: Seconds after which a trainer that has done no work yet no longer counts as starting.
STARTING = 60.0
#: Seconds after which a trainer that does not read its messages is killed.
SEND_TIMEOUT = 10.0
#: Seconds in which a trainer whose socket is closed may end by itself.
EXIT_TIMEOUT = 1.0
#: The number that a program adds to a signal's number to form its exit status, if the program that
#: it started was ended by that signal.
SIGNALLED = 128
#: The messages that a trainer may send while it still imports the modules for its first run. The
#: message ``stopped`` is included, because a run that waits behind the first run may be stopped.
_BEFORE_WORK = ("preparing", "stopped")


class Sockets:
    """A trainer's sockets and its identity, which exist before the trainer's process does."""

    def __init__(self, address: str) -> None:
        """Create the sockets of a new trainer.

        ``address`` is the address of this node at which other trainers can reach the new trainer.
        """
        self.ours, self.theirs = socket.socketpair()
        self.listening = listen(address)
        port = self.listening.getsockname()[1]
        self.identity = str(Identity(address, port, token_hex(8)))

    def close(self) -> None:
        """Close the sockets, because no trainer was started with them."""
        for each in (self.ours, self.theirs, self.listening):
            each.close()


class Turns(Protocol):
    """The turns of several runs in one trainer, as seen by the worker's part of an extension."""

    @property
    def told(self) -> str:
        """The text that tells the trainer about its turns (``tasks.trainer.hooks.serving``)."""

    def seconds(self, fence: int) -> float:
        """Return the seconds for which the run with the fence ``fence`` has been at work."""

    def works_for(self, fence: int) -> bool:
        """Return True if the run with this fence is at work, or was when the trainer ended."""

    def remove(self) -> None:
        """Remove the stored data of the turns, because the trainer has ended or could not start."""


class Trainer:
    """One trainer process. Any thread may send; ``conversations`` selects the thread that reads."""

    def __init__(
        self,
        launcher: TrainerLauncher,
        device: Device,
        task: SegmentTask,
        output: Path,
        sockets: Sockets,
        *,
        kept: Path | None = None,
        powercap: Path | None = None,
        turns: Turns | None = None,
    ) -> None:
        """Start a trainer whose first segment is ``task``, on a slot of ``device``.

        ``output`` is the log file. The trainer takes over ``sockets``. ``kept`` is a folder for
        data that can be computed again and does not fit in memory, or None. ``powercap`` is the
        folder with the meters that measure the trainer's energy, or None if energy is not measured.
        With ``turns``, several runs may be open in the trainer at once.

        Raises OSError if the process cannot be started, and CannotStart if the study's environment
        cannot be used.
        """
        variables = {
            **environment(device, os.environ),
            names.IDENTITY: sockets.identity,
            names.EXTENSIONS: ",".join(extensions.names("trainer")),
        }
        if kept is not None:
            variables[names.KEPT] = str(kept)
        if powercap is not None:
            variables[names.POWERCAP] = str(powercap)
        self._turns = turns
        if turns is not None:
            variables[names.SERVING] = f"{extensions.SEATS}:{turns.told}"
        launch = Launch((), variables)
        if task.environment:
            launch = _in_environment(task.environment, variables)
        self.environment, self._wrapped = task.environment, launch.wrapped
        #: The versions in the study's environment, for example ``Python 3.12.1``. Empty until the
        #: trainer is ready.
        self.versions = ""
        own_socket, self.identity = sockets.ours, sockets.identity
        # The kernel adds the sender's process id to each message.
        own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SEND_TIMEOUT))
        with sockets.theirs, sockets.listening, open_log(output) as file:
            self._output, self._before = output, os.fstat(file.fileno()).st_size
            self._process = launcher.start_trainer(
                task.contract,
                imports=() if task.environment else _imports(task),
                command=launch.command,
                variables=launch.variables,
                cores=device.cores,
                descriptors=(sockets.theirs.fileno(), sockets.listening.fileno()),
                output=file.fileno(),
            )
        #: The id of the process that sends messages. The value is 0 if another program starts the
        #: trainer and the trainer has sent no message yet.
        self._speaker = 0 if launch.wrapped else self._process.pid
        #: The pidfd of the trainer's process if another program has started the process; else None.
        self._below: Pidfd | None = None
        self._signalling = threading.Lock()
        self.conversations = Conversations(self.receive)
        self.ready = False
        self._began = time.monotonic()
        self._worked = False
        #: The id of the decision behind the last segment of each trial that the trainer keeps.
        self.causes: dict[str, str] = {}
        #: The number of segments that run in the trainer.
        self.runs = 0
        #: The time (monotonic, in seconds) at which the trainer's last segment ended.
        self.idle_since = time.monotonic()
        self._channel = Channel(
            own_socket, ended=self._process.fileno(), speaks=self._speaks, longest=MAX_MESSAGE
        )
        self._sending = threading.Lock()
        self._impostors: set[int] = set()

    @property
    def pid(self) -> int:
        return self._speaker or self._process.pid

    @property
    def descriptors(self) -> tuple[int, int]:
        """A pair of descriptors for polling.

        The first is readable after a message, and the second is readable after the trainer's end.
        """
        return self._channel.fileno(), self._process.fileno()

    @property
    def alive(self) -> bool:
        return self._process.alive

    @property
    def children(self) -> int:
        """The number of running processes that the user's code has started in the trainer."""
        return count_children(self.pid)

    def seconds(self, fence: int) -> float:
        """Return the time of a run's own clock. ``fence`` names the run.

        The clock stands still while other runs have turns in the trainer.
        """
        return time.monotonic() if self._turns is None else self._turns.seconds(fence)

    @property
    def takes_turns(self) -> bool:
        """True if the trainer may have several runs in memory, which take turns."""
        return self._turns is not None

    def works_for(self, fence: int) -> bool:
        """Return True if the run with this fence has its turn, or had it when the trainer ended."""
        return self._turns is None or self._turns.works_for(fence)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. If the trainer has ended, the thread that reads notices the end."""
        self.send_text(dumps(message))

    def send_text(self, text: str) -> None:
        with self._sending:
            try:
                self._channel.send_line(f"{text}\n".encode())
            except BlockingIOError:
                # Half a message may have been sent: nothing after it could be understood.
                log.warning("trainer %d has not listened for %g s: ended", self.pid, SEND_TIMEOUT)
                self.kill()
            except OSError as error:
                log.debug("trainer %d does not listen: %s", self.pid, error)

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """Return the next message, or None after ``timeout`` seconds.

        Only one thread at a time may call this. Raises TrainerGone if the trainer has ended or the
        message is invalid.
        """
        try:
            line = self._channel.line(max(0.0, timeout))
        except (EOFError, OSError) as error:
            raise self._gone() from error
        except TooLong as error:
            raise self.malformed(error.args[0]) from error
        if line is None:
            return None
        try:
            message = parse(line.decode())
        except (UnicodeDecodeError, Forged) as error:
            raise self.malformed(line) from error
        if message.get("op") == "ready":
            if self.environment:
                self._take_versions(message)
            self.ready = True
        elif message.get("op") not in _BEFORE_WORK:
            self._worked = True
        return message

    def _speaks(self, sender: int) -> bool:
        """Return True if the process with the id ``sender`` is the trainer itself."""
        # Before the trainer is ready, none of the user's code has run in these processes.
        if not self._speaker and is_below(sender, self._process.pid):
            if self._process.pid != sender:
                with suppress(ProcessLookupError):
                    self._below = Pidfd.of(sender)
            self._speaker = sender
        if sender != self._speaker and sender not in self._impostors:
            self._impostors.add(sender)
            log.warning("what process %d said for trainer %d is dropped", sender, self.pid)
        return sender == self._speaker

    def _take_versions(self, ready: dict[str, Any]) -> None:
        """Note the versions in the study's environment, from the trainer's ``ready`` message.

        Raises TrainerGone if the environment has another version of Penstock than the worker.
        """
        try:
            self.versions = endings.versions_of(self.environment, ready)
        except TrainerGone:
            self.end()
            raise

    @property
    def starting(self) -> bool:
        """True if the trainer is new and still imports the modules for its first run."""
        return not self._worked and time.monotonic() - self._began < STARTING

    def malformed(self, line: object) -> TrainerGone:
        """End the process, which has sent the invalid ``line``, and return the error to raise.

        No message that follows such a line can be trusted.
        """
        self.end()
        words = f"its process sent the worker an invalid message: {ascii(line)[:120]}"
        return TrainerGone(f"{words}; does its code write to a descriptor that it did not open?")

    def _gone(self) -> TrainerGone:
        """Return the error that says how the trainer ended.

        The processes that the trainer left behind are ended, and the error names them.
        """
        has_ended = self._process.wait(EXIT_TIMEOUT)
        survivors = self._process.end()
        status = self._process.status
        if status is None:
            return TrainerGone(self._process.trouble, lost=True)
        if self._wrapped and status > SIGNALLED:
            status = SIGNALLED - status
        if self.environment and not self.ready and status != -signal.SIGKILL:
            last_words = last_error(self._output, self._before)
            return endings.unfit(self.environment, status, last_words)
        error = uncaught(self._output, self._before) if status == UNCAUGHT else ""
        return endings.ending(status if has_ended else PIPE_CLOSED, survivors, error)

    def kill(self) -> None:
        """Kill the process at once, even if the process is stopped. The call never waits."""
        self._kill_below(0.0)
        self._process.kill()

    def end(self) -> None:
        """End the process and all processes that it started. The call may wait for the launcher."""
        self._kill_below(EXIT_TIMEOUT)
        self._process.end()

    def _kill_below(self, timeout: float) -> None:
        """Kill the trainer's own process if another program has started it.

        The call waits up to ``timeout`` seconds for the end. Without the kill, the trainer could
        outlive the program that started it, and would count as a process that the user's code had
        started.
        """
        with self._signalling:
            if self._below is None:
                return
            self._below.send(signal.SIGKILL)
        self._below.wait(timeout)

    def close(self) -> None:
        """End the process and close its sockets and descriptors. A second call does nothing."""
        self.end()
        # A reader must notice the end before other files reuse the descriptors.
        with self.conversations.reading_alone(wait=True):
            self._process.close()
            self._channel.close()
            if self._turns is not None:
                self._turns.remove()
            with self._signalling:
                if self._below is not None:
                    self._below.close()


def _timeval(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))


def _in_environment(environment: str, variables: Mapping[str, str]) -> Launch:
    """Return the launch (command and variables) of a trainer in its study's environment.

    Raises CannotStart if the environments extension is missing or the environment cannot be used.
    """
    try:
        launching = extensions.end_of("environments", "launching", f"environment = {environment}")
    except UsageError as error:
        raise CannotStart(str(error)) from error
    launch: Launch = launching.launch(environment, variables)
    return launch


def _imports(task: SegmentTask) -> list[str]:
    """Return the names of the modules that the task's code imports at its top.

    The list is empty if this node cannot read the code.
    """
    code = task.code
    if by_value.is_by_value(code.target):
        return by_value.imports_of(task.store, code.digest)
    module = code.target.rpartition(":")[0]
    folder = Path(code.path)
    if not module.endswith(".py"):
        return imported_names(folder.joinpath(*module.split(".")).with_suffix(".py"), folder)
    return imported_names(Path(module), folder)
