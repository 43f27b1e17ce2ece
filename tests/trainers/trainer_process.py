"""A real trainer process at the other end of a socket pair, and tasks for it."""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from patience import PATIENCE
from penstock.app import extensions
from penstock.tasks.contracts.code import reference
from penstock.tasks.contracts.contract import is_epoch_function
from penstock.tasks.process.fork_server import Client
from penstock.tasks.process.forking import adopting
from penstock.tasks.process.lifeline import MARK_VARIABLE
from penstock.tasks.process.output import MARK
from penstock.tasks.trainer import variables as names
from penstock.wire.channel import Channel
from penstock.wire.messages import CodeRef, SegmentTask
from user_code import trainees

EXTENSIONS = ",".join(extensions.names("trainer"))


def contract_of(code) -> str:
    if isinstance(code, type):
        return "torch"
    return "epochs" if is_epoch_function(code) else "objective"


def segment(code, first=1, n=1, *, trial="s-0000", **changes) -> SegmentTask:
    """A segment of ``code``, a class or function of ``trainees``."""
    target, path, digest = reference(code)
    fields = {
        "id": "d1",
        "study": "s",
        "trial": trial,
        "number": int(trial[-4:]),
        "contract": contract_of(code),
        "code": CodeRef(target=target, path=path, digest=digest),
        "params": {},
        "metric": "accuracy",
        "seed": 7,
        "first": first,
        "n": n,
        "fence": 1,
        "queues": ["cpu.s0"],
        "store": "memory://checkpoints",
        "lease_ms": 5000,
    }
    return SegmentTask.model_validate(fields | changes)


def known(trainer, heard):
    """Return a task's fields for the accepted epochs that were ``heard`` from ``trainer``."""
    said = [message for message in heard if message["op"] == "epoch"]
    parents = [{name: m[name] for name in ("epoch", "uri", "state_hash")} for m in said if m["uri"]]
    return {"parents": parents, "expect": said[-1]["state_hash"], "holder": trainer.identity}


def alone_hashes(trainer, tasks):
    """The state hashes of ``tasks``, which ``trainer`` trains one after the other."""
    found = {}
    for each in tasks:
        found |= hashes(trainer.carry_out(each))
    return found


#: More epochs than any machine trains before a test has seen what it waits for.
ENDLESS = 100_000


def train_until(lane, tasks, met):
    """All that is said of ``tasks`` without an end, which are cut once ``met(heard)`` is true."""
    for each in tasks:
        lane.run(each)
    heard, deadline = [], time.monotonic() + PATIENCE
    while not met(heard):
        assert time.monotonic() < deadline, f"not met in {PATIENCE:g} s: {heard[-10:]}"
        heard.append(lane.hear())
    for each in tasks:
        lane.say(op="cut", trial=each.trial, fence=each.fence)
    return heard + hear_all(lane, tasks)


def as_far(tasks, heard):
    """These tasks, of as many epochs as are heard to have ended."""
    last = {m["trial"]: m["epoch"] for m in heard if m["op"] == "epoch"}
    return [each.model_copy(update={"n": last[each.trial]}) for each in tasks]


class ForkServer:
    """A real fork server for the tests of one pytest process: each import is done once."""

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        self._client = Client(Channel(ours), "trainers")
        self._mark = f"{os.getpid()}:{{:06}}"
        self._count = itertools.count(1)
        told = {
            names.FORK_SERVER_FD: str(theirs.fileno()),
            names.PRELOAD: "torch,objective,epochs",
            names.EXTENSIONS: EXTENSIONS,
            "OMP_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": "1",
            MARK_VARIABLE: self._mark.format(0),
        }
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.tasks.trainer.fork_server"],
                env=os.environ | told,
                pass_fds=[theirs.fileno()],
            )
        self._client.until(time.monotonic() + PATIENCE, imported="epochs")

    def fork(self, descriptors: Sequence[int], variables: Mapping[str, str]) -> Forked:
        mark = self._mark.format(next(self._count))
        told = {"OPENBLAS_NUM_THREADS": "1", **variables, MARK_VARIABLE: mark}
        cores = sorted(os.sched_getaffinity(0))
        # The trainer loses its parent, and comes to this process. No other process shall: nobody
        # would wait for it.
        with adopting():
            return Forked(self._client.fork(told, cores, descriptors, PATIENCE))

    def close(self) -> None:
        self._client.close()
        self.process.wait()


@functools.cache
def fork_server(threads: int) -> ForkServer:
    server = ForkServer(threads)
    atexit.register(server.close)
    return server


class Forked:
    """An adopted child, as a ``Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = os.pidfd_open(pid)
        self._status: int | None = None

    def kill(self) -> None:
        signal.pidfd_send_signal(self._ended, signal.SIGKILL)

    def wait(self, timeout: float = PATIENCE) -> int:
        if self._status is None:
            assert select.select([self._ended], [], [], timeout)[0], "it does not end"
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ended)
        return self._status


class TrainerProcess:
    """A trainer as a worker has it: forked, or ``new``, started as a program of its own."""

    def __init__(
        self,
        log: Path,
        threads: int = 1,
        *,
        answers_history: bool = True,
        new: bool = False,
        seats: int = 1,
        kept: Path | None = None,
    ) -> None:
        """``answers_history``: questions for the study's history are answered here.

        ``kept``: the folder of the node's trainers, which share batches.
        """
        self.log = log
        self._answers_history = answers_history
        ours, theirs = socket.socketpair()
        listening = socket.create_server(("127.0.0.1", 0))
        self.identity = f"127.0.0.1:{listening.getsockname()[1]}:word"
        with theirs, listening, log.open("ab") as output:
            descriptors = [theirs.fileno(), listening.fileno()]
            variables = dict(os.environ) | {
                names.FD: str(theirs.fileno()),
                names.LISTEN: str(listening.fileno()),
                names.IDENTITY: self.identity,
                names.EXTENSIONS: EXTENSIONS,
                "OMP_NUM_THREADS": str(threads),
            }
            if kept is not None:
                variables[names.KEPT] = str(kept)
            if seats > 1:
                turns = log.with_name(f"{log.name}.turns")
                lanes = extensions.end_of("lanes", "worker", "a trainer with several seats")
                self.page = lanes.share(turns, seats)
                variables[names.SERVING] = f"lanes:{self.page.told}"
            if new:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "penstock.tasks.trainer"],
                    env=variables,
                    pass_fds=descriptors,
                    stdout=output,
                    stderr=output,
                )
            else:
                self.process = fork_server(threads).fork([*descriptors, output.fileno()], variables)
        ours.settimeout(PATIENCE)
        self.socket = ours
        self.lines = ours.makefile("rb")

    def say(self, **message) -> None:
        """Send a message to the trainer.

        A message about a run is about the newest one, unless it gives trial and fence; the study of
        a released trial goes on, unless it is given.
        """
        if message["op"] in ("cut", "stop", "answer"):
            message = {"trial": self.newest.trial, "fence": self.newest.fence} | message
        if message["op"] == "release":
            message = {"study": ""} | message
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def run(self, task: SegmentTask, members: Sequence[str] = (), *, queued: bool = False) -> None:
        self.newest = task
        self.say(op="run", members=members, queued=queued, task=task.model_dump(mode="json"))

    def hear(self) -> dict:
        """The next message; a test fails with the trainer's log if it has ended."""
        line = self.lines.readline()
        assert line, f"the trainer ended: {self.log.read_text()}"
        message = json.loads(line)
        if message["op"] == "history" and self._answers_history:  # nothing has happened elsewhere
            self.say(op="answer", value=["", []])
            return self.hear()
        # Said around what is loaded, for limits and for stops that come early: no test's matter.
        return self.hear() if message["op"] in {"preparing", "prepared"} else message

    def hear_until(self, *ops: str) -> list[dict]:
        """Messages up to and with the first of kind ``ops``."""
        heard = [self.hear()]
        while heard[-1]["op"] not in ops:
            heard.append(self.hear())
        return heard

    def carry_out(self, task: SegmentTask) -> list[dict]:
        """All that is said about a segment until it is over."""
        self.run(task)
        return self.hear_out()

    def hear_out(self) -> list[dict]:
        """All that is said about the segment that runs until it is over."""
        ends = ("epoch", "returned", "failed", "refused", "stopped", "broken")
        heard = self.hear_until(*ends)
        while heard[-1]["op"] == "epoch" and not heard[-1]["closes"]:
            heard += self.hear_until(*ends)
        return heard

    def printed(self) -> list[tuple[str, str]]:
        """The lines of its log, each with the trial that printed it; empty where none is named."""
        lines = self.log.read_text().splitlines()
        marks = [MARK.match(line) for line in lines]
        return [
            (mark[2], line[mark.end() :]) if mark else ("", line)
            for mark, line in zip(marks, lines, strict=True)
        ]

    def close(self) -> int:
        """Close the pipe and give the exit status of the process."""
        self.lines.close()
        self.socket.close()
        return self.process.wait(timeout=PATIENCE)

    def __enter__(self) -> TrainerProcess:
        assert self.hear() == {"op": "ready"}
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["TrainerProcess", "segment", "trainees"]


def hashes(heard: list[dict]) -> dict[tuple[str, int], str]:
    """The state hash of each epoch that was reported, by trial and epoch."""
    return {(m["trial"], m["epoch"]): m["state_hash"] for m in heard if m["op"] == "epoch"}


def hear_all(lane: TrainerProcess, tasks: Sequence[SegmentTask]) -> list[dict]:
    """All that is said until every one of ``tasks`` is over."""
    left, heard = {each.trial for each in tasks}, []
    while left:
        heard.append(message := lane.hear())
        if message["op"] in ("failed", "stopped", "refused") or message.get("closes"):
            left.discard(message["trial"])
    return heard
