"""A broker, the scheduler's transport and one real Celery worker, for tests and benchmarks."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psutil
from patience import until
from penstock.app.broker import connection, protocol, server
from penstock.app.broker.transport import RedisTransport
from penstock.app.common.ports import Effects, Message, OpenAttempt
from penstock.app.host import locks
from penstock.app.host.settings import Settings
from penstock.app.node.launching import process as launcher_process
from penstock.app.node.worker.celery import worker_argv
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Dispatch, Member, Segment
from penstock.scheduler.model.study import Code, StudySpec
from servers.installation import is_trainer

KEY = b"k" * 32
SPEC = StudySpec(
    id="st",
    name="st",
    contract="empty",
    code=Code("nowhere:nothing", "", ""),
    metric="loss",
    direction="minimize",
    n_trials=1,
    space=(),
)


@dataclass
class Bench:
    """Sends segments to a device's slots and hears what comes back."""

    settings: Settings
    transport: RedisTransport
    device: Device
    processes: list[subprocess.Popen] = field(default_factory=list)
    fences: count = field(default_factory=lambda: count(1))

    @property
    def url(self):
        return server.broker_url(self.settings)

    def start_worker(self, **environment) -> subprocess.Popen:
        """One Celery worker of the device, seen by the transport when this returns."""
        log = (self.settings.logs / "worker.log").open("ab")
        process = subprocess.Popen(
            worker_argv(self.device),
            env={**os.environ, **self.settings.environment(), **environment},
            cwd=self.settings.home,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
        log.close()
        self.processes.append(process)
        until(lambda: self.device.name in self.transport.survey([]).devices)
        return process

    def below(self) -> list[psutil.Process]:
        """The launcher process and all below it that run."""
        pid = locks.pid_of(self.settings.run, launcher_process.NAME)
        if pid is None:
            return []
        launcher = psutil.Process(pid)
        found = [launcher, *launcher.children(recursive=True)]
        return [process for process in found if _runs(process)]

    def trainers(self) -> list[psutil.Process]:
        return [process for process in self.below() if is_trainer(process)]

    def log(self) -> str:
        return (self.settings.logs / "worker.log").read_text()

    def dispatch(self, trial="st-0000", *, first=1, n=1, slot=0, fence=None, params=()):
        """A segment's decision; the fence is a new one where none is given."""
        fence = next(self.fences) if fence is None else fence
        return Dispatch(
            id=f"{fence}.0",
            cause=fence,
            study=SPEC.id,
            number=0,
            params=params,
            segment=Segment(trial, first, n, fence, (Member(self.device.name, slot),)),
            shards=1,
            parents=(),
            expect="",
            holder="",
            final=False,
        )

    def send(self, trial="st-0000", spec=SPEC, **segment):
        dispatch = self.dispatch(trial, **segment)
        self.transport.carry_out(Effects(dispatches=[(dispatch, spec)]))
        return dispatch

    def reports(self, n: int) -> list[Message]:
        """The next ``n`` reports, acknowledged."""
        found: list[Message] = []

        def heard():
            new = self.transport.receive(0.2)
            self.transport.carry_out(Effects(acks=new))
            found.extend(new)
            return len(found) >= n

        until(heard, f"{n} reports", lambda: f"{len(found)} came:\n{self.log()}")
        assert len(found) == n
        return found

    def seen(self, trial="st-0000"):
        return self.transport.survey([OpenAttempt(trial, 0, 1)]).states[trial]


def _runs(process: psutil.Process) -> bool:
    """Return whether a process still runs: it may end while it is looked at."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def bench(home: Path, *, slots: int = 1, seats: int = 1, lease_ms: int = 1000):
    """A bench without a worker yet; everything that it started is gone afterwards."""
    settings = Settings(home=home, lease_ms=lease_ms, preload="nothing")
    settings.ensure_home()
    server.start(settings)
    transport = RedisTransport(server.broker_url(settings), KEY, lease_ms=lease_ms)
    transport.open()
    # As of a study that has just been submitted: nothing has happened in it.
    transport.carry_out(Effects(history=[(SPEC.id, protocol.whole(0))]))
    cores = tuple(sorted(os.sched_getaffinity(0)))
    bench = Bench(
        settings, transport, Device("cpu.n.0", "n", "cpu", cores, None, slots, seats=seats)
    )
    try:
        yield bench
    finally:
        for process in bench.processes:
            process.kill()
            process.wait()
            process.stdin.close()
        locks.stop(settings.run, launcher_process.NAME, grace=5.0)
        transport.close()
        server.stop(settings)


def client(bench: Bench):
    return connection.connect(bench.url)
