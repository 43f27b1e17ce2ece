"""A checkpoint is whole and the right one, or it is not read at all."""

from __future__ import annotations

import hashlib
import io
import os
import queue
import shutil
import subprocess
import sys
from collections import Counter, OrderedDict
from pathlib import Path

import pytest
import torch
from patience import PATIENCE
from penstock.base.errors import BackendError
from penstock.tasks.checkpoints import checkpoint, stores
from penstock.tasks.checkpoints.checkpoint import Store, Writer, load
from penstock.tasks.checkpoints.state import state_hash

STATE = {"model": {"w": torch.arange(4.0)}, "optimizer": {"lr": 0.1}, "schedule": None}


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    return Store(f"file://{tmp_path}/store" if request.param == "file" else "memory://store")


def test_a_state_comes_back_bit_for_bit(store):
    state = load(store.save(STATE, 3), state_hash(STATE))
    assert state_hash(state) == state_hash(STATE)


def test_a_state_saved_twice_is_one_file(tmp_path):
    store = Store(f"file://{tmp_path}")
    assert store.save(STATE, 3) == store.save(STATE, 3)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 1
    assert hashlib.sha256(files[0].read_bytes()).hexdigest() == files[0].stem


def shuffled(value):
    """An equal state that came about in another way: other objects, order of keys and storages."""
    if isinstance(value, torch.Tensor):
        room = torch.zeros(2, *value.shape, dtype=value.dtype)
        room[1] = value
        return room[1]
    if isinstance(value, dict):
        made = type(value)()
        for name in reversed(list(value)):
            made["".join(name) if isinstance(name, str) else name] = shuffled(value[name])
        return made
    if isinstance(value, (list, tuple)):
        return type(value)(map(shuffled, value))
    return "".join(list(value)) if isinstance(value, str) else value


def test_equal_states_are_one_file_whatever_their_objects_and_order(tmp_path):
    same = "lr"
    state = {
        "model": OrderedDict(
            w=torch.arange(6.0).reshape(2, 3), b=torch.ones(0), c=torch.ones(1, 2)
        ),
        "optimizer": {
            "state": {0: {"step": 1.5}, 1: {}},
            "names": [same, same, "".join(["l", "r"])],
        },
        "schedule": {"milestones": Counter([3, 3, 5]), "betas": (0.9, 0.999), "twice": [[1], [1]]},
    }
    other = shuffled(state)
    other["optimizer"]["names"] = ["".join(list(same)) for _ in range(3)]
    other["schedule"]["twice"] = [[1]] * 2
    assert state_hash(state) == state_hash(other)
    store = Store(f"file://{tmp_path}")
    uri = store.save(state, 3)
    assert store.save(other, 3) == uri
    back = load(uri, state_hash(state))
    assert store.save(back, 3) == uri, "a state that was loaded is the same file again"
    assert back["schedule"]["milestones"][4] == 0, "still a Counter"
    assert store.save(state, 4) != uri


def test_a_state_that_is_there_is_not_written_again_unless_it_is_torn(tmp_path):
    store = Store(f"file://{tmp_path}")
    path = Path(store.save(STATE, 3).removeprefix("file://"))
    written = path.stat()
    store.save(STATE, 3)
    assert path.stat().st_ino == written.st_ino
    path.write_bytes(path.read_bytes()[:-1])
    assert load(store.save(STATE, 3), state_hash(STATE))


def test_no_checkpoint_is_begun_that_leaves_too_little_space(tmp_path, monkeypatch):
    store = Store(f"file://{tmp_path}")
    free = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr(stores, "RESERVE_SHARE", 1.0)
    monkeypatch.setattr(stores, "RESERVE", 2 * free)
    with pytest.raises(OSError, match=r"disk of the checkpoint store is full: .* are kept free"):
        store.save(STATE, 3)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("reserve", "words"),
    [(1 << 30, "1 GiB"), (3 << 19, "1.5 MiB"), (410 << 10, "410 KiB"), (70, "70 bytes")],
)
def test_how_much_is_kept_free_is_said_in_a_unit_of_its_size(tmp_path, monkeypatch, reserve, words):
    monkeypatch.setattr(stores, "RESERVE_SHARE", 1.0)
    monkeypatch.setattr(stores, "RESERVE", reserve)
    with pytest.raises(OSError, match=f"is full: {words} of its "):
        stores.check_space(tmp_path, shutil.disk_usage(tmp_path).total)


#: Saves a state that fits, one that does not, and after room was made that one again.
FILL = """
import pathlib, sys, torch
from penstock.tasks.checkpoints import checkpoint
from penstock.tasks.checkpoints.state import state_hash
from patience import PATIENCE
disk = pathlib.Path(sys.argv[1])
mode = sys.argv[2]
if mode == "middle":  # as if the space was there when it was looked at
    checkpoint.check_space = lambda folder, size: None
said = __import__("queue").SimpleQueue()
writer = checkpoint.Writer(
    lambda snapshot, uri: said.put(("durable", snapshot.epoch, uri)),
    lambda snapshot, reason: said.put(("undurable", snapshot.epoch, reason)),
)
store = f"file://{disk}/store"
ballast = disk / "ballast"
ballast.write_bytes(bytes(5 << 20))
states = [{"w": torch.full((n << 18,), 1.0)} for n in (1, 5)]  # 1 and 5 MiB on a disk of 8
for epoch, state in [(1, states[0]), (2, states[1]), (3, states[1])]:
    if epoch == 3:
        ballast.unlink()
    writer.submit(store, "s-0000", epoch, state_hash(state), state)
    kind, at, text = said.get(timeout=PATIENCE)
    files = sorted(p.suffix for p in disk.rglob("*") if p.is_file() and p != ballast)
    print(kind, at, files, text if kind == "undurable" else "")
    if kind == "durable":
        checkpoint.load(text, state_hash(state))
"""


@pytest.mark.parametrize(
    ("mode", "why"),
    [("reserve", "the disk of the checkpoint store is full"), ("middle", "No space")],
)
def test_a_disk_that_fills_leaves_no_torn_file_and_checkpoints_go_on_when_there_is_room(
    mode, why, tmp_path
):
    """A real disk of 8 MiB: a tmpfs in a mount namespace of its own."""
    enter = ["unshare", "--mount", "--map-root-user"]
    able = shutil.which("unshare") and subprocess.run([*enter, "true"], check=False).returncode == 0
    if not able and not os.environ.get("CI"):
        pytest.skip("no mount namespaces here: run as root, or allow user namespaces")
    mount = f'mount -t tmpfs -o size=8m tmpfs "{tmp_path}" && exec "$@"'
    program = [sys.executable, "-c", FILL, str(tmp_path), mode]
    ran = subprocess.run(
        [*enter, "sh", "-c", mount, "sh", *program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    first, second, third = ran.stdout.splitlines()
    assert first.strip() == "durable 1 ['.pt']"
    assert second.startswith(f"undurable 2 ['.pt'] {why}")
    assert third.strip() == "durable 3 ['.pt', '.pt']"


def test_another_state_than_the_ledgers_is_refused(store):
    with pytest.raises(BackendError, match=r"holds state .* the ledger has 0000"):
        load(store.save(STATE, 3), "0000")


def test_a_torn_or_missing_file_is_refused(tmp_path):
    uri = Store(f"file://{tmp_path}").save(STATE, 3)
    path = Path(uri.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BackendError, match="corrupt"):
        load(uri, state_hash(STATE))
    path.unlink()
    with pytest.raises(BackendError, match="cannot be read"):
        load(uri, state_hash(STATE))


class Bomb:
    def __reduce__(self):
        return print, ("boom",)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, capsys):
    buffer = io.BytesIO()
    torch.save({"format": 1, "epoch": 1, "state": {"model": Bomb()}}, buffer)
    content = buffer.getvalue()
    path = tmp_path / f"{hashlib.sha256(content).hexdigest()}.pt"
    path.write_bytes(content)
    with pytest.raises(BackendError, match="cannot be loaded"):
        load(f"file://{path}", "any")
    assert capsys.readouterr().out == ""


def test_a_write_that_fails_leaves_nothing_and_the_writer_goes_on(tmp_path, capsys):
    said = queue.SimpleQueue()
    writer = Writer(lambda snapshot, uri: said.put((snapshot.trial, uri)), ignore)
    (tmp_path / "broken").touch()
    writer.submit(f"file://{tmp_path}/broken", "s-0000", 1, state_hash(STATE), STATE)
    writer.submit(f"file://{tmp_path}/store", "s-0001", 1, state_hash(STATE), STATE)
    trial, uri = said.get(timeout=PATIENCE)
    assert trial == "s-0001"
    assert load(uri, state_hash(STATE))
    assert "checkpoint of s-0000 failed" in capsys.readouterr().err


def test_a_store_that_was_away_is_written_to_once_it_is_there(tmp_path, capsys):
    said = queue.SimpleQueue()
    writer = Writer(lambda snapshot, uri: said.put((snapshot.trial, uri)), ignore)
    (tmp_path / "store").touch()
    store = f"file://{tmp_path}/store"
    writer.submit(store, "s-0000", 1, state_hash(STATE), STATE)
    writer.submit(f"file://{tmp_path}/another", "s-0001", 1, state_hash(STATE), STATE)
    assert said.get(timeout=PATIENCE)[0] == "s-0001"  # so that the first one was tried, too
    (tmp_path / "store").unlink()
    writer.submit(store, "s-0000", 2, state_hash(STATE), STATE)
    trial, uri = said.get(timeout=PATIENCE)
    assert trial == "s-0000"
    assert load(uri, state_hash(STATE))
    assert capsys.readouterr().err.count("failed") == 1


def ignore(*_):
    pass


def test_a_checkpoint_is_due_a_while_after_the_last_one():
    writer = Writer(ignore, ignore)
    assert writer.due("never saved", 3600.0)
    writer.begin("just begun")
    assert not writer.due("just begun", 3600.0)


def test_how_long_a_while_follows_from_what_a_checkpoint_costs_and_how_often_one_is_needed(
    tmp_path, monkeypatch
):
    said = queue.SimpleQueue()
    writer = Writer(lambda snapshot, uri: said.put(uri), ignore)
    clock = [100.0]
    save = Store.save

    def slowly(store, state, epoch):
        clock[0] += 2.0  # of writing
        return save(store, state, epoch)

    monkeypatch.setattr(Store, "save", slowly)
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    writer.submit(f"file://{tmp_path}", "s-0000", 1, state_hash(STATE), STATE)
    said.get(timeout=PATIENCE)
    clock[0] = 100.0 + 119.0
    assert not writer.due("s-0000", 3600.0), "Young: sqrt(2 * 2 * 3600) is 120 s"
    clock[0] = 100.0 + 121.0
    assert writer.due("s-0000", 3600.0)
    clock[0] = 100.0 + 13.0
    assert writer.due("s-0000", 36.0)
