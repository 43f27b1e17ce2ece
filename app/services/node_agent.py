"""The node agent (``penstock worker``): runs a Celery worker for each device of this machine.

It finds the devices and joins the installation: the broker's URL is the credential, and the broker
provides signing key and store. It keeps one worker process per device running. A worker is bound to
its device before its first instruction: to a GPU by its UUID, to CPU cores by affinity. A worker
that ends is started again at once, and ever more slowly if it keeps ending.

Workers hold the read end of a pipe whose write end only the agent holds. However the agent dies,
they see the end of the pipe and leave. Each holds the lock of its device, so a device is never
served twice: the next agent waits for a worker that is still leaving, and kills one that does not
leave.

SIGTERM drains. Workers take nothing more, the scheduler cuts running segments at their next epoch
(and revokes those with no end in sight), and the agent ends when the workers have ended. It does
not wait if there is no scheduler to do so, or after a second SIGTERM.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from ...profiling.base.errors import BackendError, UsageError
from ...profiling.base.hiding import hidden
from ...profiling.devices.device import Device
from ...tasks.process.identity import listen
from ..broker import connection, presence, protocol, server
from ..broker import installation as store
from ..common.ports import DRAIN_GRACE
from ..host import locks, logs
from ..host.devices import devices_of, metered
from ..host.launcher import end_strays
from ..host.logs import LogKeeper
from ..host.settings import Settings
from ..launching import client as launching
from ..launching import process as launcher_process
from ..launching.environments import why_no_rootfs
from ..launching.variables import environment, worker_environment
from .supervisor import Supervisor

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

NAME = "agent"
#: Seconds that the agent waits for a broker that is being restarted before it gives up.
BROKER_TIMEOUT = 5.0
#: Seconds that a scheduler may be away while workers drain. A scheduler that was stopped at the
#: same time is back by then, if a survivor revives it.
UNSERVED_GRACE = 4.0
#: Seconds between two checks whether a scheduler is there.
SERVED_CHECK_INTERVAL = 0.5
#: Seconds within which a worker of an earlier agent must leave its device.
LEAVE_GRACE = 3.0
#: A worker that ran for this many seconds was healthy; after its end it is restarted at once.
HEALTHY_AFTER = 10.0
MAX_RESTART_DELAY = 10.0
#: This many early ends of a worker in a row are no accident and are reported.
CRASH_LOOP_AFTER = 2
_LOG_AGAIN_AFTER = 10.0


@dataclass(slots=True)
class ServedDevice:
    """A device and its worker. Times are monotonic seconds."""

    device: Device
    #: The worker; None while it does not run.
    process: subprocess.Popen[bytes] | None = None
    #: A descriptor that becomes readable when the worker ends; -1 while it does not run.
    ended: int = -1
    #: When to start the worker, while it does not run.
    due: float = 0.0
    #: When the worker was started last.
    began: float = 0.0
    #: How many times in a row it ended early.
    early_exits: int = 0
    #: Since when a worker of an earlier agent holds the device; None if none does.
    occupied_since: float | None = None

    @property
    def lock(self) -> str:
        return f"device-{self.device.name}"


class StopRequested(Exception):
    """The agent was asked to stop while it was still joining."""


def main(settings: Settings) -> int:
    """Serve this machine's devices until told to stop; returns the exit status.

    Raises UsageError (no such devices, no state folder, another agent here) and BackendError
    (broker or checkpoint store does not answer), each before any worker is started.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings.ensure_home()
    with locks.hold(settings.run, NAME), Supervisor(settings), _signals() as wake:
        agent = Agent(settings, wake)
        with LogKeeper(settings):
            return agent.run()


class Agent:
    """One agent's life: join, supervise, drain. ``wake`` is readable once for each signal."""

    def __init__(self, settings: Settings, wake: int) -> None:
        self._settings = settings
        self._wake = wake
        if settings.address is not None:
            _check_address(settings.address)
        found = metered(devices_of(settings), settings.powercap)
        no_rootfs = why_no_rootfs()
        self._served = [ServedDevice(replace(each, no_rootfs=no_rootfs)) for each in found]
        self._url = server.broker_url(settings)
        # Nothing is ever written: the closing of the write end is the message.
        self._pipe, self._writing_end = os.pipe()

    def run(self) -> int:
        try:
            client = self._reach_broker()
        except StopRequested:
            return 0
        self._claim_name(client)
        self._end_strays()  # an earlier agent and its workers may have been killed
        try:
            # Before the workers, since its imports take longest.
            device = self._served[0].device
            launching.ensure(self._settings, environment(device, self._environment(device)))
            self._join(client)
            names = ", ".join(served.device.name for served in self._served)
            log.info("serving %s", names)
            while not self._stop_requested(self._next_due()):
                self._supervise(client)
            self._drain(client)
        except StopRequested:
            return 0
        finally:
            for served in self._served:
                if served.process is not None:
                    served.process.kill()
                    served.process.wait()
            locks.stop(self._settings.run, launcher_process.NAME, grace=LEAVE_GRACE)
            self._end_strays()
            self._sign_off(client)
        return 0

    # -- joining ---------------------------------------------------------------------------------

    def _join(self, client: redis.Redis) -> None:
        installation = self._installation(client)
        store.check(installation.store, installation.key)

    def _reach_broker(self) -> redis.Redis:
        deadline = time.monotonic() + BROKER_TIMEOUT
        while True:
            left = deadline - time.monotonic()
            try:
                return server.connect(self._settings, limit=max(0.1, left))
            except BackendError:
                if left < 0.2:
                    raise
            self._sleep(0.1)

    def _installation(self, client: redis.Redis) -> presence.Installation:
        say = time.monotonic() + 1.0
        while True:
            # A scheduler must be there first: an earlier one may have had another store.
            served = presence.is_served(client, self._url)
            found = presence.fetch_installation(client, self._url)
            if served and found is not None:
                return found
            if time.monotonic() > say:
                log.info("waiting: no scheduler serves this broker yet")
                say += _LOG_AGAIN_AFTER
            if self._settings.broker is None:
                # A private broker's scheduler is on this machine and its store can be reached, so
                # workers load while the scheduler does.
                self._supervise(client)
            self._sleep(0.05)

    def _claim_name(self, client: redis.Redis) -> None:
        """Refuse a node name under which another state folder already serves."""
        node = self._served[0].device.node
        own_identity = _identity(self._settings.run / "identity")
        key = f"{protocol.PREFIX}node:{node}"
        with connection.translate_errors(self._url):
            holder = client.get(key)
            if holder is not None and holder != own_identity:
                names = [served.device.name for served in self._served]
                if client.exists(*map(protocol.alive_key, names)):
                    raise UsageError.refuse(
                        "PENSTOCK_NODE", node, "a name under which no other node serves"
                    )
            client.set(key, own_identity)

    # -- supervising -----------------------------------------------------------------------------

    def _next_due(self) -> float:
        idle = [served.due for served in self._served if served.process is None]
        return max(0.0, min(idle) - time.monotonic()) if idle else 3600.0

    def _stop_requested(self, timeout: float) -> bool:
        """Wait for a signal, a worker's end or ``timeout`` seconds; True if it was a signal."""
        ends = [served.ended for served in self._served if served.process is not None]
        ready, _, _ = select.select([self._wake, *ends], [], [], timeout)
        return self._wake in ready and bool(os.read(self._wake, 1))

    def _sleep(self, seconds: float) -> None:
        if self._stop_requested(seconds):
            raise StopRequested

    def _supervise(self, client: redis.Redis) -> None:
        now = time.monotonic()
        for served in self._served:
            if served.process is not None and served.process.poll() is not None:
                words = self._record_exit(served, now)
                self._forget(client, served, words)
                self._end_strays()
            if served.process is None and served.due <= now:
                try:
                    self._start(served, now)
                except OSError as error:  # user code may have replaced its log
                    if not any(other.process for other in self._served):
                        raise
                    served.due = now + MAX_RESTART_DELAY
                    log.warning("the worker of %s cannot be started: %s", served.device.name, error)

    def _record_exit(self, served: ServedDevice, now: float) -> str:
        """Record that the worker ended; returns a message if that is no accident."""
        assert served.process is not None
        served.early_exits = 0 if now - served.began > HEALTHY_AFTER else served.early_exits + 1
        wait = (
            0.0
            if served.early_exits <= 1
            else min(MAX_RESTART_DELAY, 0.25 * 2 ** (served.early_exits - 2))
        )
        how = _exit_words(served.process.returncode)
        log.warning(
            "the worker of %s ended (%s): starting it again in %g s", served.device.name, how, wait
        )
        os.close(served.ended)
        served.process = None
        served.due = now + wait
        if served.early_exits < CRASH_LOOP_AFTER:
            return ""
        if any(
            other.early_exits >= CRASH_LOOP_AFTER
            for other in self._served[: self._served.index(served)]
        ):
            return ""  # only the first is reported
        path = self._log(served.device)
        why = logs.last_error(path) or hidden(ImportError(name="celery")) or how
        return (
            f"the worker of {served.device.name} exits as soon as it is started: {why} (see {path})"
        )

    def _end_strays(self) -> None:
        if found := end_strays(str(self._settings.home)):
            log.warning("ended processes that an earlier worker left behind: %s", ", ".join(found))

    def _forget(self, client: redis.Redis, served: ServedDevice, words: str) -> None:
        """Tell the scheduler at once, with the reason, before the device's entry expires."""
        try:
            with connection.translate_errors(self._url):
                client.delete(protocol.alive_key(served.device.name))
            if words:
                presence.report_ending(client, self._url, words)
        except BackendError as error:
            log.warning("%s", error)

    def _log(self, device: Device) -> Path:
        return self._settings.logs / f"worker-{device.name}.log"

    def _start(self, served: ServedDevice, now: float) -> None:
        from ..worker.celery import worker_argv

        device = served.device
        with _bound_to(device.cores):
            process = locks.spawn_service(
                self._settings.run,
                served.lock,
                worker_argv(device),
                env=self._environment(device),
                log=self._log(device),
                cwd=self._settings.home,
                stdin=self._pipe,
            )
        if process is None:
            self._await_release(served, now)
            return
        served.process, served.began, served.occupied_since = process, now, None
        served.ended = os.pidfd_open(process.pid)

    def _await_release(self, served: ServedDevice, now: float) -> None:
        """Wait for a worker of an earlier agent to leave the device, and kill it if it does not."""
        served.occupied_since = since = served.occupied_since or now
        if now - since > LEAVE_GRACE:
            locks.send_signal(self._settings.run, served.lock, signal.SIGKILL)
        served.due = now + 0.02

    def _environment(self, device: Device) -> dict[str, str]:
        return worker_environment(self._settings, device, os.environ)

    # -- ending ----------------------------------------------------------------------------------

    def _drain(self, client: redis.Redis) -> None:
        log.info("draining, for up to %g s", DRAIN_GRACE)
        for served in self._running():
            assert served.process is not None
            served.process.terminate()
        seen = time.monotonic()
        deadline = seen + DRAIN_GRACE
        while self._running() and (left := deadline - time.monotonic()) > 0:
            if self._stop_requested(min(left, SERVED_CHECK_INTERVAL)):
                log.info("asked to stop again: not waiting")
                return
            now = time.monotonic()
            if self._is_served(client):
                seen = now
            elif now - seen > UNSERVED_GRACE:
                log.info("no scheduler is there to end the running segments: not waiting")
                return

    def _is_served(self, client: redis.Redis) -> bool:
        try:
            return presence.is_served(client, self._url)
        except BackendError as error:
            log.debug("%s", error)
            return False

    def _running(self) -> list[ServedDevice]:
        for served in self._served:
            if served.process is not None and served.process.poll() is not None:
                os.close(served.ended)
                served.process = None
        return [served for served in self._served if served.process is not None]

    def _sign_off(self, client: redis.Redis) -> None:
        names = [served.device.name for served in self._served]
        try:
            with connection.translate_errors(self._url):
                client.delete(*map(protocol.alive_key, names))
        except BackendError as error:
            log.info("%s: the devices' entries will expire", error)


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that becomes readable with each SIGTERM and SIGINT."""
    read, write = os.pipe()

    def tell(signum: int, _: object) -> None:
        os.write(write, b"x")

    before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield read
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)


@contextmanager
def _bound_to(cores: tuple[int, ...]) -> Iterator[None]:
    """Bind children started in the block to ``cores`` from their first instruction on.

    Affinity belongs to a thread, and its children inherit it, so no wrapper is needed.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _check_address(address: str) -> None:
    try:
        listen(address).close()
    except OSError as error:
        allowed = f"an address of this machine ({error.strerror})"
        raise UsageError.refuse("PENSTOCK_ADDRESS", address, allowed) from error


def _identity(file: Path) -> str:
    """A unique name for this state folder, created on first use."""
    try:
        with file.open("x") as new:
            new.write(uuid4().hex)
    except FileExistsError:
        pass
    return file.read_text("ascii", "replace")


def _exit_words(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
