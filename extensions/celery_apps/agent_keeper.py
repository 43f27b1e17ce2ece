"""Keep a node agent running as long as a Celery worker runs: ``python -m ...agent_keeper PID``.

A node agent is the process that serves a machine's devices. The keeper is a separate program,
because a Celery worker's main process cannot do this work. A task of the solo pool blocks that
process for as long as the task takes, and a thread would make the forks of the prefork pool unsafe.
The keeper serves the devices of ``Settings.devices`` by running ``penstock worker``, and starts
this program again after each end. While another agent serves this machine, the keeper waits.

SIGTERM drains the agent. SIGINT ends the agent at once, and so does the end of the Celery worker,
whose process id is ``PID``. Messages go to standard output, one on each line: a level of
``logging``, a tab, and the words.
"""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ...app.host import locks, logs
from ...app.host.pidfd import Pidfd
from ...app.host.settings import Settings, load
from ...app.server.services.services import AGENT, AGENT_GRACE, agent_of
from ...base.backoff import Restarts
from ...base.errors import PenstockError

#: Seconds between two checks for the end of another agent that serves this machine.
RETRY_INTERVAL = 2.0
#: Seconds that an agent may take to end after it is told not to wait for its trials.
END_GRACE = 5.0

DRAIN, END = signal.SIGTERM, signal.SIGINT


class AgentKeeper:
    """A loop that keeps one node agent running as long as the Celery worker ``worker`` runs.

    From the descriptor ``wake`` comes a byte for each received signal: the number of the signal.
    """

    def __init__(self, settings: Settings, worker: Pidfd, wake: int) -> None:
        self._settings = settings
        self._worker = worker
        self._wake = wake
        self._log = settings.logs / f"{AGENT}.log"
        #: The size of the agent's log when the agent was started.
        self._begin = 0
        #: The last message that was printed at each level.
        self._said: dict[str, str] = {}

    def run(self) -> None:
        """Keep an agent running until a signal comes or the Celery worker ends."""
        past, stop_signal = Restarts(), None
        while stop_signal is None:
            began = time.monotonic()
            try:
                agent = self._start()
            except (PenstockError, OSError) as error:
                past = past.started(began).ended(began)
                self._say("error", f"this machine's devices cannot be served: {error}")
                stop_signal = self._wait(None, past.due - began)
                continue
            if agent is None:
                stop_signal = self._wait(None, RETRY_INTERVAL)
                continue
            past = past.started(began)
            with Pidfd.of(agent.pid) as process:
                stop_signal = self._wait(process, math.inf)
                if stop_signal is not None:
                    self._end(agent, process, stop_signal)
                    return
            past = past.ended(time.monotonic())
            if past.early == 0:
                self._said.clear()
            self._report(agent.wait())
            stop_signal = self._wait(None, past.due - time.monotonic())

    def _start(self) -> subprocess.Popen[bytes] | None:
        """Return a new agent, or None if another agent already serves this machine."""
        self._settings.ensure_home()
        program = agent_of(self._settings.devices).argv
        bound = (sys.executable, "-P", "-m", f"{__package__}.bound", str(os.getpid()))
        begin = self._log.stat().st_size if self._log.exists() else 0
        agent = locks.spawn_service(
            self._settings.run,
            AGENT,
            (*bound, *program),
            env=os.environ,
            log=self._log,
            cwd=self._settings.home,
        )
        if agent is None:
            holder = locks.pid_of(self._settings.run, AGENT)
            self._say(
                "info",
                f"process {holder} serves this machine's devices already (its state folder is"
                f" {self._settings.home}): this worker takes over when it ends",
            )
            return None
        self._begin = begin
        self._say("info", f"this worker serves this machine's devices, see {self._log}")
        return agent

    def _report(self, status: int) -> None:
        """Print a message on the end of an agent that nobody has stopped."""
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        why = logs.last_error(self._log, self._begin)
        words = f"what serves this machine's devices ended ({how}), and is started again"
        self._say("error" if status else "info", f"{words}: {why} (see {self._log})")

    def _end(
        self, agent: subprocess.Popen[bytes], process: Pidfd, stop_signal: signal.Signals
    ) -> None:
        process.send(signal.SIGTERM)
        if stop_signal == DRAIN:
            self._wait(process, AGENT_GRACE)
        # A second SIGTERM would merge with the first if that is not handled yet.
        process.send(signal.SIGINT)
        if not process.wait(END_GRACE):
            process.send(signal.SIGKILL)
        agent.wait()

    def _wait(self, process: Pidfd | None, timeout: float) -> signal.Signals | None:
        """Wait for a signal, the end of ``process``, or ``timeout`` seconds, whichever comes first.

        Return the signal to act on, or None if there was no signal. The end of the Celery worker
        counts as SIGINT.
        """
        deadline = time.monotonic() + timeout
        watched: list[int | Pidfd] = [self._wake, self._worker]
        watched += [process] if process is not None else []
        while (remaining := deadline - time.monotonic()) > 0:
            limit = None if math.isinf(remaining) else remaining
            ready, _, _ = select.select(watched, [], [], limit)
            if self._worker in ready:
                return END
            if self._wake in ready:
                return signal.Signals(os.read(self._wake, 1)[0])
            if ready:
                return None
        return None

    def _say(self, level: str, words: str) -> None:
        """Print a message, unless it repeats the last message of its level.

        Failed tries go on without end, and would otherwise fill the worker's log.
        """
        if words != self._said.get(level):
            print(f"{level}\t{' '.join(words.split())}", flush=True)  # noqa: T201 - as it says above
        self._said[level] = words


def main() -> None:
    """Keep an agent running for the Celery worker that has started this process."""
    worker = int(sys.argv[1])
    with _signals() as wake, suppress(ProcessLookupError), Pidfd.of(worker) as process:
        if os.getppid() == worker:
            AgentKeeper(load(), process, wake).run()


@contextmanager
def _signals() -> Iterator[int]:
    """Yield a file descriptor from which the number of each received signal can be read."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    for number in (DRAIN, END):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write)
    yield read


if __name__ == "__main__":
    main()
