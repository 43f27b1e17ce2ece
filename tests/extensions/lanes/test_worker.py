"""A lane behind a real Celery worker: several trials in one trainer, and what becomes of them."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

import pytest
from patience import until
from penstock.app.common.ports import Effects
from penstock.scheduler.model.decisions import Revoke
from penstock.scheduler.model.study import Code
from penstock.tasks.contracts.code import file_digest
from servers.worker_bench import SPEC, bench

pytestmark = pytest.mark.integration

TRIALS = '''
import os, time
from pathlib import Path
import torch
from penstock import Data, TorchTrainable
from torch.utils.data import TensorDataset

class Paced(TorchTrainable):
    """So many steps an epoch, of so many seconds; it notes that it has begun."""
    batch_size = 4

    def data(self):
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(4 * self.params.get("steps", 200), 3, generator=generator)
        set = TensorDataset(x, x.sum(1, keepdim=True))
        return Data(set, TensorDataset(x[:8], x[:8].sum(1, keepdim=True)))

    def model(self):
        return torch.nn.Linear(3, 1)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def loss(self, model, batch):
        x, y = batch
        name = self.params["name"]
        if not hasattr(self, "begun"):
            self.begun = True
            Path(f"{name}.began").touch()
        if self.params.get("dies") and Path("die").exists():
            os.abort()
        while self.params.get("hangs") and not Path("go").exists():
            time.sleep(0.01)
        time.sleep(self.params.get("pause", 0.002))
        return torch.nn.functional.mse_loss(model(x), y)

    def metrics(self, model, batch):
        return {"loss": self.loss(model, batch)}
'''


@pytest.fixture
def lane(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "trials.py").write_text(TRIALS)
    with bench(home, slots=3, seats=3) as bench_of_lane:
        bench_of_lane.start_worker()
        yield bench_of_lane


def spec(lane, **changes):
    file = lane.settings.home / "trials.py"
    code = Code("trials:Paced", str(file.parent), file_digest(file))
    return replace(SPEC, contract="torch", code=code, **changes)


def send(lane, n, of, **params):
    name = f"t{n}"
    return lane.send(f"st-{n:04}", of, slot=n, params=tuple({"name": name, **params}.items()))


def began(lane, n):
    until((lane.settings.home / f"t{n}.began").exists, f"the first step of trial {n}", lane.log)


def bodies(lane, n):
    """The next ``n`` reports that say how a segment went."""
    found = []

    def heard():
        new = lane.transport.receive(0.2)
        lane.transport.carry_out(Effects(acks=new))
        found.extend(m.body for m in new if m.body["kind"] in ("epoch", "failed", "lost"))
        return len(found) >= n

    until(heard, f"{n} reports", lambda: f"{found}:\n{lane.log()}")
    assert len(found) == n
    return found


def test_the_trials_of_a_lane_are_in_one_process_and_report_by_themselves(lane):
    of = spec(lane)
    for n in range(3):
        send(lane, n, of)
    found = bodies(lane, 3)
    assert sorted(body["trial"] for body in found) == [f"st-{n:04}" for n in range(3)]
    assert {body["kind"] for body in found} == {"epoch"}
    assert len(lane.trainers()) == 1


def test_only_the_trial_in_turn_is_blamed_for_the_end_of_its_process(lane):
    of = spec(lane)
    send(lane, 0, of, steps=100_000)
    send(lane, 1, of, steps=100_000)
    began(lane, 0)
    began(lane, 1)
    send(lane, 2, of, steps=100_000, dies=1)
    began(lane, 2)
    (lane.settings.home / "die").touch()
    found = {body["trial"]: body for body in bodies(lane, 3)}
    assert found["st-0002"]["kind"] == "failed"
    assert "SIGABRT" in found["st-0002"]["message"]
    for trial in ("st-0000", "st-0001"):
        assert (found[trial]["kind"], found[trial]["ranks"]) == ("lost", [])
        assert "while it ran another trial" in found[trial]["reason"]


def test_an_epoch_s_time_limit_counts_its_turns_alone_and_ends_nobody_else(lane):
    send(lane, 0, spec(lane), steps=600)
    send(lane, 1, spec(lane, epoch_timeout=1.0), steps=100_000)
    found = {body["trial"]: body for body in bodies(lane, 2)}
    assert found["st-0001"]["failure"] == "timeout"
    assert found["st-0000"]["kind"] == "epoch"
    assert len(lane.trainers()) == 1


def test_a_limit_does_not_run_while_another_trial_holds_the_process(lane):
    limit = 10.0  # twelve times what the epoch's own turns take on a quiet machine
    send(lane, 0, spec(lane, epoch_timeout=limit), steps=400)
    began(lane, 0)
    send(lane, 1, spec(lane), hangs=1, steps=1)
    began(lane, 1)
    time.sleep(1.2 * limit)
    (lane.settings.home / "go").touch()
    found = {body["trial"]: body["kind"] for body in bodies(lane, 2)}
    assert found == {"st-0000": "epoch", "st-0001": "epoch"}


def test_one_that_is_revoked_makes_room_and_the_others_go_on(lane):
    of = spec(lane)
    send(lane, 0, of, steps=600)
    gone = send(lane, 1, of, steps=100_000)
    began(lane, 1)
    revoke = Revoke(id="r", cause=1, trial="st-0001", fence=gone.segment.fence, ranks=1)
    lane.transport.carry_out(Effects(revokes=[revoke]))
    assert [body["trial"] for body in bodies(lane, 1)] == ["st-0000"]
    send(lane, 1, of)
    assert [body["trial"] for body in bodies(lane, 1)] == ["st-0001"]
    assert len(lane.trainers()) == 1


def test_a_kill_loses_all_without_a_word_too_many(lane):
    of = spec(lane)
    for n in range(2):
        send(lane, n, of, steps=100_000)
        began(lane, n)
    lane.trainers()[0].send_signal(signal.SIGKILL)
    found = bodies(lane, 2)
    assert sorted(body["kind"] for body in found) == ["failed", "lost"]
