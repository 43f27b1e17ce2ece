"""A real trainer process at the other end of a socket pair, and tasks for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import trainees
from penstock.tasks.contracts.code import reference
from penstock.tasks.contracts.contract import is_epoch_function
from penstock.tasks.process.messages import CodeRef, SegmentTask

PATIENCE = 60.0  # seconds; a broken trainer fails a test instead of hanging it


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
    """What a task says of the epochs that were ``heard`` from ``trainer`` and accepted."""
    said = [message for message in heard if message["op"] == "epoch"]
    parents = [{name: m[name] for name in ("epoch", "uri", "state_hash")} for m in said if m["uri"]]
    return {"parents": parents, "expect": said[-1]["state_hash"], "holder": trainer.identity}


class TrainerProcess:
    """``python -m penstock.tasks.trainer`` as a worker starts it."""

    def __init__(self, log: Path, threads: int = 1, *, preload: bool = False) -> None:
        self.log = log
        ours, theirs = socket.socketpair()
        listening = socket.create_server(("127.0.0.1", 0))
        self.identity = f"127.0.0.1:{listening.getsockname()[1]}:word"
        with theirs, listening, log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.tasks.trainer"],
                env=os.environ
                | {
                    "PENSTOCK_TRAINER_FD": str(theirs.fileno()),
                    "PENSTOCK_TRAINER_LISTEN": str(listening.fileno()),
                    "PENSTOCK_TRAINER_IDENTITY": self.identity,
                    "OMP_NUM_THREADS": str(threads),
                }
                | ({"PENSTOCK_TRAINER_PRELOAD": "torch"} if preload else {}),
                pass_fds=[theirs.fileno(), listening.fileno()],
                stdout=output,
                stderr=output,
            )
        ours.settimeout(PATIENCE)
        self.socket = ours
        self.lines = ours.makefile("rb")

    def say(self, **message) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def run(self, task: SegmentTask, members: Sequence[str] = ()) -> None:
        self.say(op="run", members=members, task=task.model_dump(mode="json"))

    def hear(self) -> dict:
        """The next message; a test fails with the trainer's log if it has ended."""
        line = self.lines.readline()
        assert line, f"the trainer ended: {self.log.read_text()}"
        message = json.loads(line)
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
