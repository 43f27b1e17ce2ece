"""A trainer's serving side in a process of its own, with states made for the tests of it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import Counter, OrderedDict
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path

import torch
from patience import PATIENCE
from penstock.tasks.gangs import peers
from penstock.tasks.training import loop
from penstock.wire.identity import Identity

from testkit.gangs import MODELS

TOKEN = "open-sesame"
PROCESSES = get_context("forkserver")  # torch is imported once for all holders
PROCESSES.set_forkserver_preload(["torch._dynamo", peers.__name__, loop.__name__])
EPOCH = 2  # the epoch that a holder has of every trial


class Fatal(torch.Tensor):
    """Kills the process that comes to send it."""

    def detach(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Silent(torch.Tensor):
    """Is never ready to be sent."""

    def detach(self):
        threading.Event().wait()


def trained(name, seed):
    """The state of ``model.optimizer`` after an epoch from ``seed``."""
    model, optimizer = name.split(".")
    code = MODELS[model]({"optimizer": optimizer})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # bits depend on it, and it is each thread's own
    try:
        # On a GPU two processes would not have equal bits without what a trainer sets.
        training = loop.start(code, code.data(), seed, 0, device=torch.device("cpu"))
        loop.run_epoch(training, lambda *_: None, evaluated=False)
    finally:
        torch.set_num_threads(threads)
    return training.state()


def odd(seed):
    """A tree with every kind of tensor that a state may hold, one of them over three chunks."""
    draw = torch.Generator().manual_seed(seed)
    many = {f"t{i}": torch.randn(i % 7, generator=draw) for i in range(3000)}
    image = torch.randn(2, 3, 5, 5, generator=draw)
    return {
        "model": OrderedDict(
            many,
            long=torch.randint(0, 255, ((9 << 20) + 3,), dtype=torch.uint8, generator=draw),
            turned=torch.randn(300, 200, generator=draw).t(),
            last=image.to(memory_format=torch.channels_last),
            half=torch.randn(7, 3, generator=draw).bfloat16(),
            flags=torch.rand(5, generator=draw) < 0.5,
            count=torch.tensor(2**40 + seed),
            none=torch.empty(0, 4),
            complex=torch.randn(3, dtype=torch.complex64, generator=draw),
        ),
        "optimizer": {"state": {0: {"step": torch.tensor(float(seed))}}, "lr": 0.1 * seed},
        "schedule": {"milestones": Counter({3: seed}), "betas": (0.9, None), "name": f"s{seed}"},
    }


def breaking(kind):
    """Five chunks, the last of which never comes."""
    large = torch.zeros(20 << 20, dtype=torch.uint8)
    return {"first": torch.ones(16 << 20, dtype=torch.uint8), "last": large.as_subclass(kind)}


def state_of(trial, seed):
    if trial == "odd":
        return odd(seed)
    if trial in {"fatal", "silent"}:
        return breaking({"fatal": Fatal, "silent": Silent}[trial])
    return trained(trial, seed)


class Holder:
    """A process that serves on ``count`` sockets; ``released`` hears of every state given back.

    It waits for its clients as long as tests do, or ``patience`` seconds after it was asked for the
    port of its store.
    """

    def __init__(self, address="127.0.0.1", *, port=0, count=1, patience=PATIENCE):
        self.pipe, theirs = PROCESSES.Pipe()
        arguments = (theirs, address, port, count, patience)
        self.process = PROCESSES.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        assert self.pipe.poll(PATIENCE)
        self.ports = self.pipe.recv()
        self.identities = [str(Identity(address, port, TOKEN)) for port in self.ports]
        self.identity = self.identities[0]

    def released(self):
        """The trial whose state was given back next."""
        assert self.pipe.poll(PATIENCE)
        return self.pipe.recv()

    def fds(self):
        return fds(self.process.pid)

    def rings(self):
        return rings(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipe.close()
        self.process.join(PATIENCE)
        self.process.close()


def fds(pid="self"):
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  # a count, not paths


def rings(pid="self"):
    """Pieces of memory that a process shares with those that it serves or asks."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:penstock-")


def _serve(pipe, address, port, count, patience):
    peers.REQUEST_TIMEOUT = PATIENCE
    states = {}

    def store_port():
        peers.REQUEST_TIMEOUT = patience
        return 4711

    @contextmanager
    def lend(trial, epoch):
        if epoch == EPOCH and trial not in states:
            states[trial] = state_of(trial, seed=1)
        try:
            yield states[trial] if epoch == EPOCH else None
        finally:
            pipe.send(trial)

    sockets = [socket.create_server((address, port)) for _ in range(count)]
    for listen in sockets:
        peers.PeerServer(listen, TOKEN, lend, store_port).start()
    pipe.send([listen.getsockname()[1] for listen in sockets])
    with suppress(EOFError, ConnectionResetError):
        pipe.recv()  # until the test closes it
