"""Faults on a running installation: what is killed or stopped, and whether that counts.

A fault counts only when it hits a live lease (trainers and workers: the lease of the very segment
they run; looked at while the victim is frozen, so it cannot have ended meanwhile) or a process at
work (agent, scheduler, broker and the ledger's database, while some segment is leased).
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import redis
from penstock.app.broker import connection, protocol
from penstock.app.broker import server as broker
from penstock.app.host import locks
from penstock.app.host.settings import Settings
from penstock.app.server.services import services
from penstock.base.errors import UsageError

from testkit.trainers import LAUNCHER, fork_servers, trainers, worker_forks

from ..postgres import Server

#: Seconds that the scheduler has to take a stopped worker's trial away, once its lease is over.
NOTICE = 10.0
#: Seconds that the ledger's database stands still.
PAUSE = (1.0, 4.0)


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault that counts: when it began (seconds since 1970), its kind, and the trial that it hit.

    With ``anew``, only epochs of attempts that were sent after it show recovery.
    """

    at: float
    kind: str
    trial: str | None = None
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """A live lease: the process id of the Celery worker that holds it, and its device."""

    trial: str
    worker: int
    device: str


class Faults:
    """Carries out faults on the installation of ``settings``."""

    def __init__(
        self, settings: Settings, rng: random.Random, server: Server | None = None
    ) -> None:
        """``server`` is the ledger's database server, if faults are to hit that too."""
        self._settings = settings
        self._rng = rng
        self._server = server
        self._client: redis.Redis = connection.connect(broker.broker_url(settings), timeout=2.0)

    def inject(self, kind: str) -> Hit | None:
        """Carry out one fault of ``kind``; None if there was nothing that it could hit."""
        with contextlib.suppress(redis.RedisError, psutil.NoSuchProcess):
            return self.kinds()[kind](self, kind)
        return None

    def kinds(self) -> dict[str, Kind]:
        """The kinds of faults that are possible here, by name."""
        return KINDS if self._server is None else KINDS | DATABASE_KINDS

    def close(self) -> None:
        self._client.close()

    # -- the kinds -------------------------------------------------------------------------------

    def _kill_trainer(self, kind: str) -> Hit | None:
        for lease in self._leases():
            for trainer in trainers(self._settings.run, lease.device):
                with frozen(trainer):
                    if lease in self._leases():
                        trainer.kill()
                        return Hit(time.time(), kind, lease.trial)
        return None

    def _kill_worker(self, kind: str) -> Hit | None:
        for lease in self._leases():
            worker = psutil.Process(lease.worker)
            with frozen(worker):
                if lease in self._leases():
                    worker.kill()
                    return Hit(time.time(), kind, lease.trial)
        return None

    def _stop_worker(self, kind: str) -> Hit | None:
        """SIGSTOP until its lease is over and the scheduler has moved the fence, then SIGCONT."""
        for lease in self._leases():
            with frozen(psutil.Process(lease.worker)):
                if lease not in self._leases():
                    continue
                at, fence = time.time(), self._fence(lease.trial)
                time.sleep(self._settings.lease_ms / 1000)
                noticed = time.monotonic() + NOTICE
                while self._fence(lease.trial) == fence and time.monotonic() < noticed:
                    time.sleep(0.02)
                return Hit(at, kind, lease.trial)
        return None

    def _kill_service(self, kind: str) -> Hit | None:
        pid = locks.pid_of(self._settings.run, kind)
        if pid is None or not self._at_work():
            return None
        psutil.Process(pid).kill()
        return Hit(time.time(), kind, anew=kind == "agent")

    def _kill_fork_server(self, kind: str) -> Hit | None:
        return self._kill_one(fork_servers(self._settings.run), kind)

    def _kill_worker_forks(self, kind: str) -> Hit | None:
        return self._kill_one(worker_forks(self._settings.run), kind)

    def _kill_one(self, processes: list[psutil.Process], kind: str) -> Hit | None:
        if not processes or not self._at_work():
            return None
        self._rng.choice(processes).kill()
        return Hit(time.time(), kind)

    def _wipe_broker(self, kind: str) -> Hit | None:
        """Kill the broker and delete its log before anyone can revive it."""
        run = self._settings.run
        # The keepers revive under the first lock, a starting scheduler at least under the second.
        with locks.hold(run, services.CHANGE, wait=True):
            hit = self._kill_service(broker.NAME)
            if hit is None or not locks.wait_gone(run, broker.NAME, 5.0):
                return None
            try:
                with locks.hold(run, broker.NAME):
                    shutil.rmtree(self._settings.home / "broker" / "appendonlydir")
            except UsageError:
                return None  # a scheduler was faster: the data lives on, and the fault counts not
        return Hit(hit.at, kind, anew=True)

    def _kill_database(self, kind: str) -> Hit | None:
        """``kill -9`` of the database server, which is started again at once."""
        assert self._server is not None
        if not self._at_work():
            return None
        at = time.time()
        self._server.kill()
        self._server.start()
        return Hit(at, kind)

    def _pause_database(self, kind: str) -> Hit | None:
        """Let the database server accept connections but not answer, for some seconds."""
        assert self._server is not None
        if not self._at_work():
            return None
        at = time.time()
        with self._server.paused():
            time.sleep(self._rng.uniform(*PAUSE))
        return Hit(at, kind)

    # -- what there is to hit --------------------------------------------------------------------

    def _at_work(self) -> bool:
        return bool(self._leases())

    def _leases(self) -> list[Lease]:
        """The live leases held by workers that live, in random order."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hgetall(protocol.DEVICES)
        pipeline.keys(protocol.lease_key("*", 0))
        devices, keys = pipeline.execute()
        owners: list[Any] = self._client.mget(keys) if keys else []
        serving = {json.loads(record)["incarnation"]: name for name, record in devices.items()}
        found = []
        for key, owner in sorted(zip(keys, owners, strict=True)):
            device = serving.get(str(owner).partition(".")[0])
            pid = device and locks.pid_of(self._settings.run, f"device-{device}")
            if pid:
                found.append(Lease(key.split(":")[2], pid, str(device)))
        self._rng.shuffle(found)
        return found

    def _fence(self, trial: str) -> Any:
        return self._client.hget(protocol.attempt_key(trial), "fence")


Kind = Callable[[Any, str], Hit | None]
#: The broker's own name is "kill it and keep its data".
KINDS: dict[str, Kind] = {
    "trainer": Faults._kill_trainer,
    "worker": Faults._kill_worker,
    "agent": Faults._kill_service,
    LAUNCHER: Faults._kill_service,
    "fork server": Faults._kill_fork_server,
    "worker forks": Faults._kill_worker_forks,
    "scheduler": Faults._kill_service,
    "broker": Faults._kill_service,
    "broker wiped": Faults._wipe_broker,
    "worker stopped": Faults._stop_worker,
}
DATABASE_KINDS: dict[str, Kind] = {
    "database": Faults._kill_database,
    "database stopped": Faults._pause_database,
}


@contextlib.contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    """Freeze the process in the block; it may be killed there."""
    process.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
