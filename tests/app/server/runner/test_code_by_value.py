"""The scheduler keeps code by value before it accepts its study, if it is what it says."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace

import pytest
from penstock.app.common.clock import SimulatedClock
from penstock.app.ledger.codec import spec_to_json
from penstock.app.ledger.ledger import MemoryLedger
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner import code_by_value
from penstock.app.server.runner.runner import Runner
from penstock.app.server.services.code_files import StoredCode
from penstock.base.errors import BackendError
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.study import Code
from penstock.tasks.contracts.by_value import read
from worlds.desk import Curve, Desk, command, said
from worlds.drive_world import device, spec

CONTENT = b"a pickle, for all that a scheduler knows"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
STUDY = spec(code=Code("pickle:train:f", "/", DIGEST), n_trials=2, argv=("a",), cwd="/a")


@pytest.fixture
def store(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def desk(store):
    desk = Desk(SimulatedClock(), [device()], Curve())
    desk.inbox, desk.answered, desk.dropped = [], [], []
    return desk


@pytest.fixture
def runner(desk, store):
    ledger, files = MemoryLedger(), StoredCode(store)
    runner = Runner(Engine(), ledger, desk, SamplerHost(), desk.clock, code=files)
    runner.start()
    return runner


def submitted(runner, desk, **body):
    desk.inbox = [command(1, "submit", study=json.loads(spec_to_json(STUDY)), **body)]
    runner.turn(0.0)
    [(_, answer)] = said(desk)
    return answer


def blobs(content, digest=DIGEST):
    return {"blobs": {digest: base64.b64encode(content).decode()}}


def test_code_is_in_the_store_when_its_study_is_accepted(runner, desk, store):
    assert submitted(runner, desk, **blobs(CONTENT)) == {"ok": True}
    assert read(store, DIGEST) == CONTENT
    StoredCode(store).keep(DIGEST, CONTENT)  # a command that is repeated


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "this installation's store does not have it: run the script"),
        (blobs(CONTENT + b"x"), "allowed is the SHA-256 of the code that is sent"),
        ({"blobs": {DIGEST: "no base64!"}}, "allowed is code in base64"),
        ({"blobs": {DIGEST: 7}}, "allowed is at most 32 MiB of code"),
        ({"blobs": {DIGEST: "A" * 5000}}, "at most"),
    ],
)
def test_a_study_whose_code_is_not_what_it_says_is_refused(
    runner, desk, store, body, words, monkeypatch
):
    if words == "at most":
        monkeypatch.setattr(code_by_value, "LIMIT", 3000)
    answer = submitted(runner, desk, **body)
    assert (answer["ok"], answer["type"], words in answer["error"]) == (False, "UsageError", True)
    assert not runner.engine.state.studies
    with pytest.raises(BackendError):
        read(store, DIGEST)


def test_a_study_that_is_over_goes_on_with_newer_code_and_one_at_work_as_it_is(runner, desk, store):
    submitted(runner, desk, **blobs(CONTENT))
    newer = CONTENT + b", edited"
    digest = hashlib.sha256(newer).hexdigest()
    edited = replace(STUDY, code=replace(STUDY.code, digest=digest), argv=("b",), cwd="/b")
    given = json.loads(spec_to_json(edited))
    now = {"spec": given, **blobs(newer, digest)}
    desk.inbox = [command(2, "extend", study="s-1", by=1, **now)]
    runner.turn(0.0)
    assert runner.engine.state.studies["s-1"].spec == replace(STUDY, n_trials=3)
    while runner.engine.state.studies:
        runner.turn(1.0)
    desk.inbox = [command(3, "extend", study="s-1", by=1, **now | {"spec": given | {"argv": [1]}})]
    runner.turn(0.0)
    assert "a malformed study is refused: argv" in said(desk)[-1][1]["error"]
    desk.inbox = [command(4, "extend", study="s-1", by=1, **now)]
    runner.turn(0.0)
    assert said(desk)[-1][1] == {"ok": True, "n_trials": 4}
    found = runner.engine.state.studies["s-1"].spec
    assert (found.code.digest, found.argv, found.cwd) == (digest, ("b",), "/b")
    assert read(store, digest) == newer
