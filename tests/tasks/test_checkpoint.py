"""A checkpoint is whole and the right one, or it is not read at all."""

from __future__ import annotations

import hashlib
import io
import queue
from pathlib import Path

import pytest
import torch
from penstock.profiling.errors import BackendError
from penstock.tasks.checkpoint import Store, Writer, load
from penstock.tasks.state import state_hash
from trainer_process import PATIENCE

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
    writer = Writer(lambda snapshot, uri: said.put((snapshot.trial, uri)))
    (tmp_path / "broken").touch()
    writer.submit(f"file://{tmp_path}/broken", "s-0000", 1, state_hash(STATE), STATE)
    writer.submit(f"file://{tmp_path}/store", "s-0001", 1, state_hash(STATE), STATE)
    trial, uri = said.get(timeout=PATIENCE)
    assert trial == "s-0001"
    assert load(uri, state_hash(STATE))
    assert "checkpoint of s-0000 failed" in capsys.readouterr().err


def test_a_store_that_was_away_is_written_to_once_it_is_there(tmp_path, capsys):
    said = queue.SimpleQueue()
    writer = Writer(lambda snapshot, uri: said.put((snapshot.trial, uri)))
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


def test_a_checkpoint_is_due_a_while_after_the_last_one():
    writer = Writer(lambda snapshot, uri: None)
    assert writer.due("never saved")
    writer.begin("just begun")
    assert not writer.due("just begun")
