"""Checkpoints in an S3-compatible store: a real server, real trainers, no secret in any word."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading

import fsspec
import pytest
import torch
from patience import PATIENCE
from penstock.base.errors import BackendError
from penstock.tasks.checkpoints.checkpoint import Store, Writer, load
from penstock.tasks.checkpoints.state import state_hash
from penstock.tasks.checkpoints.stores import unusable
from servers.s3_server import BUCKET, KEY_ID, SECRET, serving
from trainers.trainer_process import TrainerProcess, segment, trainees

STATE = {"model": {"w": torch.arange(4.0)}}


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


def test_a_state_comes_back_from_s3_and_is_sent_there_once(s3):
    store = Store(f"s3://{BUCKET}/once")
    uri = store.save(STATE, 3)
    assert uri.startswith(f"s3://{BUCKET}/once/")
    assert state_hash(load(uri, state_hash(STATE))) == state_hash(STATE)
    sent = len(s3.requests("PUT"))
    assert Store(f"s3://{BUCKET}/once").save(STATE, 3) == uri
    assert len(s3.requests("PUT")) == sent


def test_a_killed_trainers_trial_is_restored_from_s3_by_another(s3, tmp_path):
    fields = {"trial": "s-0001", "store": f"s3://{BUCKET}/moved"}
    with TrainerProcess(tmp_path / "first.log") as first:
        whole = first.carry_out(segment(trainees.Small, 1, 4, **fields))
        first.carry_out(segment(trainees.Small, 1, 3, final=True, fence=2, **fields))
        said = first.hear()
        assert said["op"] == "durable"
        first.process.kill()
        first.process.wait()
    parent = {name: said[name] for name in ("epoch", "uri", "state_hash")}
    expect = whole[2]["state_hash"]
    task = segment(trainees.Small, 4, 1, parents=[parent], expect=expect, fence=3, **fields)
    with TrainerProcess(tmp_path / "second.log") as second:
        moved = second.carry_out(task)
    assert [m["op"] for m in moved] == ["epoch"], "nothing was replayed"
    assert moved[0]["state_hash"] == whole[3]["state_hash"]
    for log in ("first.log", "second.log"):
        assert SECRET not in (tmp_path / log).read_text()


def test_a_reader_sees_the_whole_of_an_upload_or_nothing(s3):
    big = {"w": torch.arange(4 << 20, dtype=torch.float32)}  # 16 MiB
    name = Store("memory://names").save(big, 1).rpartition("/")[2]
    uri = f"s3://{BUCKET}/seen/{name[:2]}/{name}"
    store = Store(f"s3://{BUCKET}/seen")
    writing = threading.Thread(target=store.save, args=(big, 1))
    writing.start()
    missed = 0
    while writing.is_alive():
        try:
            load(uri, state_hash(big))
        except BackendError as error:
            assert "cannot be read" in str(error), "torn"
            missed += 1
    writing.join()
    assert missed
    assert load(uri, state_hash(big))


def test_a_store_that_goes_away_is_said_in_the_same_words_and_written_to_when_it_is_back(s3):
    said = queue.SimpleQueue()
    writer = Writer(
        lambda snapshot, uri: said.put(("durable", uri)),
        lambda snapshot, reason: said.put(("undurable", reason)),
    )
    store = f"s3://{BUCKET}/away"

    def heard(epoch):
        writer.submit(store, "s-0000", epoch, state_hash(STATE), STATE)
        return said.get(timeout=PATIENCE)

    s3.stop()
    first, second = heard(1), heard(2)
    assert first == second
    assert first[0] == "undurable"
    s3.start()
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(BUCKET)
    kind, uri = heard(3)
    assert kind == "durable"
    assert load(uri, state_hash(STATE))


def test_a_store_that_refuses_is_named_without_the_credentials(s3, monkeypatch):
    with pytest.raises(BackendError, match="s3://no-such-bucket/x") as refused:
        load("s3://no-such-bucket/x/00/00.pt", "")
    assert SECRET not in str(refused.value)
    assert KEY_ID not in str(refused.value)


def test_a_password_in_a_stores_url_or_in_its_librarys_words_is_hidden():
    url = "sftp://me:s3cret@host/x"
    said = str(unusable(url, OSError(f"cannot connect to {url}")))
    assert "sftp://***@" in said
    assert "s3cret" not in said


#: Opens a store where the library cannot be imported.
WITHOUT = """
import sys
sys.modules["s3fs"] = None  # what an import of it then finds: nothing
from penstock.tasks.checkpoints.stores import open_store
open_store("s3://bucket/prefix")
"""


def test_without_its_library_a_store_is_refused_with_what_to_install():
    program = [sys.executable, "-c", WITHOUT]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    said = ran.stderr.splitlines()[-1]
    assert said.startswith("penstock.BackendError: the checkpoint store s3://bucket/prefix needs")
    assert said.endswith("pip install 'penstock[s3]'")
