"""The node agent (``penstock worker``), which runs a Celery worker for each device of this machine.

The agent finds the devices and joins the installation. The broker's URL is the credential: the
broker gives the agent the signing key and the URL of the store. The agent then keeps one worker
process running for each device (``served_device``).

Workers hold the read end of a pipe whose write end only the agent holds. However the agent dies,
the workers see the end of the pipe and end, too.

SIGTERM drains the node. Workers take no more segments, and the scheduler cuts running segments at
their next epoch (and revokes segments whose end is not in sight). The agent ends when its workers
have ended. The agent does not wait for its workers if no scheduler runs, or after a second SIGTERM.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ....base.backoff import RESTARTS
from ....base.errors import BackendError, UsageError
from ....wire.identity import listen
from ...broker import connection, presence, protocol, server
from ...broker import installation as store
from ...common.ports import DRAIN_GRACE
from ...extensions import of_ends
from ...host import locks
from ...host.devices import devices_of, metered
from ...host.launcher import end_strays
from ...host.log_keeper import LogKeeper
from ...host.settings import Settings
from ...server.services.services import AGENT
from ...server.services.supervisor import Supervisor
from ..launching import client as launching
from ..launching.variables import environment
from ..worker.forks import WorkerForks
from .served_device import LEAVE_GRACE, ServedDevice

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

#: Seconds to wait for a private broker that is being restarted, or for a broker that refuses the
#: agent.
BROKER_TIMEOUT = 5.0
#: Milliseconds for which an agent reserves a device's name before the device's worker has started.
CLAIM_MS = 60_000
#: Seconds for which the scheduler may be away while workers drain. A scheduler that was stopped at
#: the same time as the agent, and that another service restarts, is back by then.
UNSERVED_GRACE = 4.0
#: Seconds between two checks whether a scheduler serves the broker.
SERVED_CHECK_INTERVAL = 0.5
_LOG_AGAIN_AFTER = 10.0


class StopRequested(Exception):
    """The exception for a request to stop before the agent has joined the installation."""


def main(settings: Settings) -> int:
    """Serve this machine's devices until the agent is told to stop. Return the exit status.

    The call waits for a broker that does not answer. Raises UsageError if the devices do not exist,
    if the state folder cannot be used, or if another agent runs here. Raises BackendError if the
    broker refuses the agent, or if the checkpoint store does not answer. No worker runs then,
    except that an agent with a private broker starts its workers while it waits for the scheduler.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings.ensure_home()
    with (
        locks.hold(settings.run, AGENT),
        _forks() as forks,
        Supervisor(settings, tuple if forks is None else forks.processes),
        _signals() as wake,
    ):
        agent = Agent(settings, wake, forks)
        with LogKeeper(settings):
            return agent.run()


@contextmanager
def _forks() -> Iterator[WorkerForks | None]:
    """Yield the fork server of the workers, or None if there is none.

    Call this before any thread starts, because only a process with one thread may fork.
    """
    forks = WorkerForks.begin()
    try:
        yield forks
    finally:
        if forks is not None:
            forks.close()


class Agent:
    """One node agent, which joins the installation, supervises its workers, and drains them.

    ``wake`` is a descriptor that becomes readable with each signal.
    """

    def __init__(self, settings: Settings, wake: int, forks: WorkerForks | None) -> None:
        self._settings = settings
        self._wake = wake
        if settings.address is not None:
            _check_address(settings.address)
        devices = metered(devices_of(settings), settings.powercap)
        for announced in of_ends("node", "announced"):
            fields = announced()
            devices = tuple(replace(each, **fields) for each in devices)
        self._served = [ServedDevice(each, settings, forks) for each in devices]
        self._url = server.broker_url(settings)
        # Nothing is ever written to the pipe: the end of the pipe is the message.
        self._pipe, self._writing_end = os.pipe()

    def run(self) -> int:
        try:
            client = self._reach_broker()
        except StopRequested:
            return 0
        self._claim_names(client)
        self._end_strays()  # an earlier agent and its workers may have been killed
        try:
            # The launcher process starts before the workers, because its imports take longest.
            first = self._served[0]
            launching.ensure(self._settings, environment(first.device, first.environment))
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
            launching.stop(self._settings, LEAVE_GRACE)
            self._end_strays()
            self._sign_off(client)
        return 0

    # -- joining ---------------------------------------------------------------------------------

    def _join(self, client: redis.Redis) -> None:
        installation = self._installation(client)
        store.check(installation.store, installation.key)
        self._claim_names(client)  # the first reservation may have expired meanwhile

    def _reach_broker(self) -> redis.Redis:
        """Wait for the broker and return its client.

        The broker's machine may start after this one.
        """
        began = say = time.monotonic()
        while True:
            remaining = began + BROKER_TIMEOUT - time.monotonic()
            try:
                return server.connect(self._settings, limit=max(1.0, remaining))
            except BackendError as error:
                waits = self._settings.broker is not None and connection.may_pass(error)
                if remaining < 0.2 and not waits:
                    raise
                if waits and time.monotonic() > say:
                    log.info("waiting for the broker (Ctrl-C ends this): %s", error)
                    say = time.monotonic() + _LOG_AGAIN_AFTER
            self._sleep(0.1 if remaining > 0 else 1.0)

    def _installation(self, client: redis.Redis) -> presence.Installation:
        say = time.monotonic() + 1.0
        while True:
            # Wait for a scheduler first: the record may be an earlier scheduler's, with another
            # store.
            is_served = presence.is_served(client, self._url)
            installation = presence.fetch_installation(client, self._url)
            if is_served and installation is not None:
                return installation
            if time.monotonic() > say:
                log.info("waiting: no scheduler serves this broker yet")
                say += _LOG_AGAIN_AFTER
            if self._settings.broker is None:
                # A private broker's scheduler is on this machine and its store can be reached, so
                # workers load while the scheduler does.
                self._supervise(client)
            self._sleep(0.05)

    def _claim_names(self, client: redis.Redis) -> None:
        """Reserve the devices' names on the broker until the devices' workers take them.

        Raises UsageError if an agent of another state folder serves one of the devices, or has
        reserved its name. All agents reserve names in the same order, so if several agents start at
        once, one of them succeeds.
        """
        own = self._settings.folder_id()
        claims: list[str] = []
        for name in sorted(served.device.name for served in self._served):
            claim = protocol.claim_key(name)
            with connection.translate_errors(self._url):
                client.set(claim, own, nx=True, px=CLAIM_MS)
                claimant, server_now = client.get(claim), client.get(protocol.alive_key(name))
                if claimant == own:
                    client.set(claim, own, px=CLAIM_MS)
                    claims.append(claim)
                if claimant == own and server_now in (None, own):
                    continue
                if claims:
                    client.delete(*claims)
            raise UsageError(
                f"{name} is served to this broker from another state folder on a node of this name,"
                f" {self._served[0].device.node}. The workers of a machine need one PENSTOCK_HOME;"
                " machines of one name need names of their own: PENSTOCK_NODE",
                "PENSTOCK_NODE",
            )

    # -- supervising -----------------------------------------------------------------------------

    def _next_due(self) -> float:
        idle = [served.due for served in self._served if served.process is None]
        return max(0.0, min(idle) - time.monotonic()) if idle else 3600.0

    def _stop_requested(self, timeout: float) -> bool:
        """Wait for a signal, for the end of a worker, or for ``timeout`` seconds.

        Returns True if there was a signal.
        """
        ends = [served.ended for served in self._served if served.process is not None]
        ready, _, _ = select.select([self._wake, *ends], [], [], timeout)
        return self._wake in ready and bool(os.read(self._wake, 1))

    def _sleep(self, seconds: float) -> None:
        if self._stop_requested(seconds):
            raise StopRequested

    def _supervise(self, client: redis.Redis) -> None:
        now = time.monotonic()
        for served in self._served:
            if served.has_ended:
                self._forget(client, served, served.record_exit(now))
                self._end_strays()
            if served.process is None and served.due <= now:
                try:
                    served.start(self._pipe, now)
                except OSError as error:  # user code may have replaced its log
                    if not any(other.process for other in self._served):
                        raise
                    served.due = now + RESTARTS.longest
                    log.warning("the worker of %s cannot be started: %s", served.device.name, error)

    def _end_strays(self) -> None:
        if strays := end_strays(str(self._settings.home)):
            log.warning("ended processes that an earlier worker left behind: %s", ", ".join(strays))

    def _forget(self, client: redis.Redis, served: ServedDevice, how: str) -> None:
        """Tell the scheduler at once that the device is gone, before the device's key expires.

        If the device's workers keep ending, the reason is reported, too. ``how`` says how the last
        worker ended.
        """
        earlier = self._served[: self._served.index(served)]
        name = served.device.name
        try:
            with connection.translate_errors(self._url):
                # The name stays reserved for this state folder until the next worker takes it.
                client.set(protocol.claim_key(name), self._settings.folder_id(), px=CLAIM_MS)
                client.delete(protocol.alive_key(name))
            # If the workers of several devices keep ending, only the first device is reported.
            if served.keeps_ending and not any(other.keeps_ending for other in earlier):
                presence.report_ending(client, self._url, served.crash_words(how))
        except BackendError as error:
            log.warning("%s", error)

    # -- ending ----------------------------------------------------------------------------------

    def _drain(self, client: redis.Redis) -> None:
        log.info("draining, for up to %g s", DRAIN_GRACE)
        for served in self._running():
            assert served.process is not None
            served.process.terminate()
        last_served = time.monotonic()
        deadline = last_served + DRAIN_GRACE
        while self._running() and (remaining := deadline - time.monotonic()) > 0:
            if self._stop_requested(min(remaining, SERVED_CHECK_INTERVAL)):
                log.info("asked to stop again: not waiting")
                return
            now = time.monotonic()
            if self._is_served(client):
                last_served = now
            elif now - last_served > UNSERVED_GRACE:
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
            if served.has_ended:
                served.let_go()
        return [served for served in self._served if served.process is not None]

    def _sign_off(self, client: redis.Redis) -> None:
        names = [served.device.name for served in self._served]
        keys = [of(name) for name in names for of in (protocol.alive_key, protocol.claim_key)]
        own = self._settings.folder_id()
        try:
            with connection.translate_errors(self._url):
                # Keys of another state folder stay: the names may have been refused to this agent.
                if own_keys := [key for key in keys if client.get(key) == own]:
                    client.delete(*own_keys)
        except BackendError as error:
            log.info("%s: the devices' entries will expire", error)


@contextmanager
def _signals() -> Iterator[int]:
    """Yield a descriptor that becomes readable with each SIGTERM and SIGINT.

    The interpreter writes to the descriptor as soon as the signal arrives. A handler in Python
    would run only in this thread, which may sleep on if the kernel gave the signal to another
    thread.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    earlier = signal.set_wakeup_fd(write)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(earlier)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)


def _check_address(address: str) -> None:
    try:
        listen(address).close()
    except OSError as error:
        allowed = f"an address of this machine ({error.strerror})"
        raise UsageError.refuse("PENSTOCK_ADDRESS", address, allowed) from error
