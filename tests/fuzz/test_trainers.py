"""Messages between trainers and a store's content: each is a state, or an error of ours."""

from __future__ import annotations

import hashlib
import io
import json
import socket
import socketserver
import struct
import sys
import threading
from contextlib import contextmanager, nullcontext, suppress

import pytest
import torch
from fuzz.fuzzing import EXAMPLES, ODD, fuzzed, in_time, spoilt_bytes, spoilt_json, spoilt_text
from hypothesis import strategies as st
from patience import PATIENCE
from penstock.app.host.launcher import Launcher
from penstock.app.node.launching import fork_server
from penstock.app.node.sessions.link import Link
from penstock.app.node.sessions.session import Session
from penstock.app.node.sessions.trainer import Sockets, Trainer
from penstock.base.errors import BackendError
from penstock.profiling.devices.device import Device
from penstock.tasks.checkpoints.checkpoint import FORMAT, load
from penstock.tasks.checkpoints.state import state_hash
from penstock.tasks.gangs import peers, tensor_stream
from penstock.tasks.gangs.peers import PeerServer, fetch, store_port
from penstock.tasks.gangs.rendezvous import RendezvousHandler
from penstock.tasks.process.failure import Lost
from penstock.wire.identity import Identity
from penstock.wire.messages import CodeRef, SegmentTask, dumps

TASK = SegmentTask(
    id="1.0", study="s", trial="s-0000", number=0, contract="objective", fence=1, metric="loss",
    code=CodeRef(target="m:f", path="", digest=""), params={}, seed=0, first=1, n=9,
    queues=("cpu.n.0.s0",), lease_ms=1000,
)  # fmt: skip
#: A trainer that says what is in a file, and ends.
SAYS = (
    "import os, socket, sys\n"
    "sock = socket.socket(fileno=int(os.environ['PENSTOCK_TRAINER_FD']))\n"
    "sock.sendall(open(sys.argv[1], 'rb').read())\n"
    "os._exit(3)\n"
)
OF_OURS = {"trial": TASK.trial, "fence": TASK.fence}
SAID = [
    {"op": op, **OF_OURS, **fields}
    for op, fields in {
        "epoch": {
            "epoch": 1, "metrics": {"loss": 0.5}, "state_hash": "h", "signature": "s",
            "seconds": 0.1, "closes": False, "uri": "", "joules": None, "memory": 1,
        },
        "preparing": {}, "prepared": {}, "stopped": {},
        "progress": {"epoch": 1, "step": 2, "steps": 3, "text": "t"},
        "remarked": {"text": "t"},
        "derived": {"base": "b", "log": "[]", "digest": "d", "outline": "[]"},
        "replayed": {"first": 1, "last": 2, "reason": "r"},
        "trying": {"config": [["threads", 2]]},
        "windows": {"windows": [], "failed": []},
        "profiled": {"epoch": 1, "values": {"cycles": 1.0}},
        "waiting": {"text": "t"},
        "suggest": {"name": "x", "distribution": "{}"},
        "returned": {"value": 0.5, "further": [], "constraints": {}, "pruned": False},
        "failed": {"kind": "nan", "message": "m", "traceback": "t"},
        "refused": {"reason": "r", "signature": "s", "expected": "e"},
    }.items()
]  # fmt: skip

TOKEN = "word"
STATE = {"model": {"w": torch.arange(4.0)}, "optimizer": {"lr": 0.1}, "schedule": None}
OUTLINE = tensor_stream.outline_of(STATE)


def framed(body):
    return struct.pack("!Q", len(body)) + body


def in_a_frame(text):
    return framed(text.encode("utf-8", "replace"))


class Hostile(socketserver.ThreadingTCPServer):
    """A trainer that answers each connection with the bytes that stand in ``says``."""

    daemon_threads = True
    says = b""

    class RequestHandlerClass(socketserver.BaseRequestHandler):
        def handle(self):
            with suppress(ConnectionError):
                self.request.sendall(self.server.says)
                self.request.shutdown(socket.SHUT_WR)
                while self.request.recv(1 << 16):
                    pass

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.RequestHandlerClass)
        self.identity = str(Identity(*self.server_address, TOKEN))


@pytest.fixture(scope="module")
def hostile():
    with Hostile() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


class Noted(Link):
    """The scheduler's side: it takes what can be written down, and answers."""

    def __init__(self):
        super().__init__("redis://127.0.0.1:1/0")
        self.closed = []

    def report(self, task, owner, body, *, closes, sampled=()):
        dumps([body, sampled])
        self.closed.append(closes)
        return "ok"

    def ask(self, task, owner, body, *, still):
        dumps(body)
        return {"value": 0.5}


@pytest.fixture(scope="module")
def launcher():
    return Launcher()


@st.composite
def odd_messages(draw):
    """Messages of which each has one field that is odd, and last what is near one, or nothing."""
    places = [(each, name) for each in SAID for name in each if name not in ("op", *OF_OURS)]
    lines = []
    for message, name in draw(st.lists(st.sampled_from(places), max_size=12)):
        text = json.dumps({**message, name: "here"})
        lines.append(text.replace('"here"', draw(st.sampled_from(ODD))))
    return "\n".join([*lines, draw(spoilt_json(*SAID))])


@fuzzed(said=odd_messages(), examples=max(1, EXAMPLES // 2))  # a process each
def test_whatever_a_trainer_says_its_segment_ends_with_one_last_report(
    launcher, tmp_path, monkeypatch, said
):
    file = put(tmp_path, b'{"op": "ready"}\n' + said.encode("utf-8", "replace") + b"\n")
    command = (sys.executable, "-S", "-c", SAYS, file.removeprefix("file://"))
    monkeypatch.setattr(fork_server, "TRAINER", command)
    device = Device("cpu.n.0", "n", "cpu", (), None, 1)
    server = fork_server.ForkServer(launcher, {}, tmp_path / "server.log")
    trainer = Trainer(server, device, TASK, tmp_path / "log", Sockets("127.0.0.1"))
    link = Noted()
    session = Session(TASK, "{}", "w.1", link, show=lambda _: None, durable=lambda *_: None)
    try:
        with in_time():
            assert session.run(trainer)
    finally:
        trainer.close()
    assert link.closed.count(True) == 1
    assert link.closed[-1]


ANSWERS = [
    framed(b'{"path": null}') + framed(OUTLINE) + STATE["model"]["w"].numpy().tobytes(),
    framed(b'{"path": "/proc/self/fd/0", "title": "x"}') + framed(OUTLINE) + bytes(16),
]


OFFERS = spoilt_json('{"path": null}', '{"path": "/dev/zero", "title": "x"}')


@fuzzed(says=spoilt_bytes(*ANSWERS) | OFFERS.map(in_a_frame))
def test_a_state_from_a_trainer_is_one_or_an_error(hostile, says):
    hostile.says = says
    with in_time():
        try:
            state = fetch(hostile.identity, "s-1-0000", 1, into=None, timeout=1.0)
        except BackendError:
            return
    assert state is None or isinstance(state, dict)


@fuzzed(kinds=spoilt_json([["float32", [4]]]), tree=st.sampled_from([STATE, {}, 5, [1]]))
def test_an_outline_whose_kinds_are_spoilt_is_an_error(hostile, kinds, tree):
    text = io.BytesIO()
    torch.save({"tree": tree, "kinds": kinds}, text)
    hostile.says = framed(b'{"path": null}') + framed(text.getvalue())
    with in_time():
        try:
            fetch(hostile.identity, "s-1-0000", 1, into=None, timeout=1.0)
        except BackendError:
            return


@fuzzed(text=spoilt_json({"port": 4711}))
def test_a_port_from_a_trainer_is_one_or_an_error(hostile, text):
    hostile.says = in_a_frame(text)
    with in_time():
        try:
            assert 0 < store_port(hostile.identity, timeout=1.0) < 1 << 16
        except BackendError:
            return


@contextmanager
def serving():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        PeerServer(listening, TOKEN, lambda *_: nullcontext(None), lambda: 4711).start()
        yield listening.getsockname()
        listening.shutdown(socket.SHUT_RDWR)


REQUESTS = [
    framed(json.dumps({"token": token, **body}).encode())
    for token in (TOKEN, "another")
    for body in ({"op": "port"}, {"op": "state", "trial": "t", "epoch": 1, "ring": False})
]


def test_a_trainer_serves_on_whatever_it_is_asked(capfd):
    bodies = spoilt_json({"token": TOKEN, "op": "port"})
    with serving() as (address, port):

        @fuzzed(says=spoilt_bytes(*REQUESTS) | bodies.map(in_a_frame))
        def is_asked(says):
            # It may hang up at any time.
            with in_time(), socket.create_connection((address, port)) as sock, suppress(OSError):
                sock.settimeout(PATIENCE)
                sock.sendall(says)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass

        is_asked()
        assert store_port(f"{address}:{port}:{TOKEN}") == 4711
    capfd.readouterr()


def test_a_stranger_who_says_nothing_is_sent_away_soon(monkeypatch):
    monkeypatch.setattr(peers, "REQUEST_TIMEOUT", 0.05)
    with serving() as where, socket.create_connection(where, PATIENCE) as sock:
        assert sock.recv(1) == b""


@pytest.fixture(scope="module")
def meetings():
    """One trainer's side, with its own store."""
    found = RendezvousHandler("127.0.0.1:1:word", torch.device("cpu"))
    found.store_port()
    return found


@fuzzed(text=spoilt_json([True, "cpu"], [1, [2]]), fence=st.integers(1, 10**9))
def test_a_word_in_a_store_is_a_members_or_the_gang_is_lost(meetings, text, fence):
    other = "127.0.0.1:2:word"
    meeting = meetings.begin((meetings.identity, other), fence, lambda: None)
    meeting.store.set(f"{fence}/gang/1", text.encode("utf-8", "replace"))
    with in_time():
        try:
            mine, theirs = meeting.exchange("gang", [True, "cpu"])
        except Lost:
            return
        finally:
            meeting.store.delete_key(f"{fence}/gang/1")
    assert mine == [True, "cpu"]
    assert len(theirs) == 2


def put(tmp_path, content):
    """A file in a store under its own right name."""
    path = tmp_path / f"{hashlib.sha256(content).hexdigest()}.pt"
    path.write_bytes(content)
    return path.as_uri()


def saved(document):
    buffer = io.BytesIO()
    torch.save(document, buffer)
    return buffer.getvalue()


def twisted():
    """A state of few bytes that is endless to walk through."""
    state = [1]
    for _ in range(60):
        state = [state, state]
    return {"deep": state}


DOCUMENTS = st.sampled_from(
    [
        *(5, None, [], {}, "text", torch.zeros(2)),
        {"format": FORMAT},
        {"format": FORMAT, "epoch": 1, "state": 5},
        {"format": FORMAT, "epoch": 1, "state": {None: 1, "a": 2, 3: 4}},
        {"format": "two", "epoch": 1, "state": STATE},
        {"format": FORMAT, "epoch": 1, "state": {"sparse": torch.eye(2).to_sparse()}},
        {"format": FORMAT, "epoch": 1, "state": {"meta": torch.zeros(2, device="meta")}},
        {"format": FORMAT, "epoch": 1, "state": {"size": torch.Size([1]), "dtype": torch.float32}},
        {"format": FORMAT, "epoch": 1, "state": {"words": "\ud800", "big": 10**5000}},
        {"format": FORMAT, "epoch": 1, "state": twisted()},
    ]
)
RIGHT = saved({"format": FORMAT, "epoch": 1, "state": STATE})


@fuzzed(content=spoilt_bytes(RIGHT) | DOCUMENTS.map(saved))
def test_a_file_in_a_store_is_the_ledgers_state_or_an_error(tmp_path, content):
    uri = put(tmp_path, content)
    with in_time():
        try:
            state = load(uri, state_hash(STATE))
        except BackendError:
            return
    assert state_hash(state) == state_hash(STATE)


@fuzzed(url=spoilt_text("file:///{}/store", "s3://bucket/x", "memory://x", "http://[::1/x"))
def test_a_store_that_cannot_be_is_an_error(tmp_path, url):
    # Only what does not leave this machine.
    if not url.startswith(("memory:", "file:///{}")) and "://" in url:
        with in_time(), pytest.raises(BackendError):
            load(f"nowhere+{url}", "h")
        return
    with in_time():
        try:
            load(url.replace("{}", str(tmp_path)), "h")
        except BackendError:
            return
    raise AssertionError(url)
