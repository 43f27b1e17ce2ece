"""Several sessions in one real trainer: each has its own segment's conversation."""

from __future__ import annotations

import json
import threading

import optuna
import psutil
import pytest
from patience import PATIENCE, until
from penstock.app.host.launcher import Launcher
from penstock.app.node.launching.fork_server import ForkServer
from penstock.app.node.sessions import session as sessions
from penstock.app.node.sessions.session import Session
from penstock.app.node.worker.lanes import Lane
from penstock.base.errors import BackendError
from penstock.profiling.devices.device import Device
from penstock.tasks.contracts.code import refer_to_value
from penstock.wire.messages import CodeRef
from trainers.trainer_process import segment
from user_code import local_objectives, trainees


class Link:
    """Takes reports and announcements; every one counts."""

    def __init__(self):
        self.closing = threading.Event()
        self.reports = []

    def report(self, task, owner, body, *, closes, sampled=()):
        if sampled:
            self.announce(task, owner, sampled)
        self.reports.append(body)
        return "ok"

    def announce(self, task, owner, sampled):
        self.reports.append({"kind": "announced", "sampled": sampled})

    def history(self, study, after):
        return after, []

    def of_kind(self, kind):
        return [each for each in self.reports if each["kind"] == kind]

    def of(self, trial, kind):
        return [each for each in self.of_kind(kind) if each["trial"] == trial]


@pytest.fixture
def trainer(tmp_path):
    device = Device("cpu.n.0", "n", "cpu", (), None, 1)
    server = ForkServer(Launcher(), {}, tmp_path / "server.log")
    lane = Lane(server, device, 0, tmp_path, "127.0.0.1")  # the server never runs: new programs
    yield lane.trainer_for(segment(trainees.Small))
    for each in lane.trainers():
        each.close()


class Running(threading.Thread):
    """A session in a thread of its own, as a lane has it."""

    def __init__(self, trainer, link, task):
        super().__init__(daemon=True)
        text = json.dumps(task.model_dump(mode="json"))
        self.shown = []
        self.session = Session(
            task, text, "w.0", link, show=self.shown.append, durable=lambda *_: None
        )
        self.trainer, self.result = trainer, None
        self.start()

    def run(self):
        self.result = self.session.run(self.trainer)

    def ended(self):
        self.join(PATIENCE)
        return self.result


def begin(trainer, link, task):
    """A session whose trainer has been told of it."""
    before = trainer.conversations.open
    running = Running(trainer, link, task)
    until(lambda: running.session.trainer is not None and trainer.conversations.open > before)
    return running


def endless():
    """Training that lasts until it is stopped."""
    return segment(trainees.Slow, 1, 2, trial="s-0000", fence=1)


def stop(running):
    running.session.on_beat(-1)
    assert running.ended() == {"dropped": "fenced off"}


def test_a_second_session_waits_its_turn_and_is_cut_and_ended_by_itself(trainer):
    link = Link()
    first = begin(trainer, link, endless())
    second = begin(trainer, link, segment(trainees.Small, 1, 9, trial="s-0001", fence=2))
    third = begin(trainer, link, segment(trainees.Small, 1, 1, trial="s-0002", fence=3))
    second.session.on_beat(1)
    stop(third)
    assert first.is_alive() and second.is_alive()
    stop(first)
    assert second.ended()["epoch"] == 1
    assert [each["closes"] for each in link.of("s-0001", "epoch")] == [True]
    assert not link.of("s-0002", "epoch")
    assert trainer.alive and not trainer.conversations.open


def of_gang():
    """A member's segment. It waits for its leader, which is another trainer."""
    return segment(trainees.Small, 1, 1, queues=["cpu.s0", "cpu.s1"])


def test_a_stopped_trainer_of_a_gang_is_ended_and_its_member_blamed(trainer, monkeypatch):
    """The other members wait for it, and its worker keeps its lease."""
    monkeypatch.setattr(sessions, "STILL_LIMIT", 1.0)
    link = Link()
    until(lambda: trainer.ready or trainer.receive(PATIENCE))
    psutil.Process(trainer.pid).suspend()
    member = begin(trainer, link, of_gang())
    assert member.ended() == {"lost": "its trainer has stood still for 1 s"}
    assert link.of_kind("lost")[0]["ranks"] == [0]
    until(lambda: not trainer.alive)


def test_a_trainer_that_stands_still_before_it_is_ready_is_ended(trainer, monkeypatch):
    monkeypatch.setattr(sessions, "STILL_LIMIT", 1.0)
    link = Link()
    psutil.Process(trainer.pid).suspend()
    assert begin(trainer, link, segment(trainees.Small)).ended()["lost"]
    until(lambda: not trainer.alive)


def test_a_stopped_trainer_that_nobody_waits_for_is_left_to_its_user(trainer, monkeypatch):
    monkeypatch.setattr(sessions, "STILL_LIMIT", 0.0)
    link = Link()
    until(lambda: trainer.ready or trainer.receive(PATIENCE))
    process = psutil.Process(trainer.pid)
    process.suspend()
    alone = begin(trainer, link, segment(trainees.Small))
    looks = []
    monkeypatch.setattr(alone.session._limit, "is_over", lambda **_: looks.append(1))
    until(lambda: len(looks) > 3)
    process.resume()
    assert alone.ended()["epoch"] == 1


def test_time_limits_begin_when_the_run_does(trainer):
    link = Link()
    first = begin(trainer, link, endless())
    limit = segment(trainees.Small, 1, 1, trial="s-0001", fence=2, epoch_timeout=5.0)
    second = begin(trainer, link, limit)
    second.join(6.0)
    assert second.is_alive()
    stop(first)
    assert second.ended()["epoch"] == 1


def test_only_the_run_at_work_is_blamed_for_the_end_of_its_trainer(trainer):
    link = Link()
    first = begin(trainer, link, endless())
    second = begin(trainer, link, segment(trainees.Small, 1, 1, trial="s-0001", fence=2))
    until(lambda: first.shown)
    psutil.Process(trainer.pid).kill()
    assert first.ended() == {"failed": "died"}
    ended = second.ended()
    (lost,) = link.of("s-0001", "lost")
    assert ended == {"lost": lost["reason"]}
    assert lost["reason"] == "signal 9 (SIGKILL), while it ran another trial"
    assert lost["ranks"] == []


def task_with_tools(folder):
    """Return a segment of an objective whose sampler, stored in ``folder``, runs with it."""
    (folder / "code").mkdir()
    tools = (optuna.samplers.RandomSampler(seed=1), optuna.pruners.NopPruner())
    code = refer_to_value(tools, "tools", str(folder))
    (folder / "code" / code.digest).write_bytes(code.content)
    reference = CodeRef(target=code.target, path=code.path, digest=code.digest)
    changes = {"tools": reference, "define_by_run": True, "study_name": "mine"}
    task = segment(local_objectives.waits_between_samples, **changes)
    return task.model_copy(update={"store": f"file://{folder}"})


def test_what_an_objective_has_sampled_is_announced_before_anything_waits_for_it(trainer, tmp_path):
    link = Link()
    running = begin(trainer, link, task_with_tools(tmp_path))
    assert "returned" in running.ended()
    kinds = [each["kind"] for each in link.reports]
    assert kinds[0] == "announced"
    announced = [sampled for each in link.of_kind("announced") for sampled in each["sampled"]]
    assert [name for name, *_ in announced] == ["x", "y"]
    accepted = [
        (name, distribution, internal)
        for each in link.reports
        for name, _, distribution, internal in each.get("writing", {}).get("suggestions", ())
    ]
    assert announced == accepted


class LostHistory(Link):
    """A broker without the study's history, until the scheduler is asked for it."""

    def history(self, study, after):
        return super().history(study, after) if self.of_kind("request") else None

    def ask(self, task, owner, body, *, still):
        self.reports.append(body)
        return {"ok": True}


def test_an_objective_draws_nothing_before_its_study_s_whole_history_is_there(trainer, tmp_path):
    link = LostHistory()
    running = begin(trainer, link, task_with_tools(tmp_path))
    assert "returned" in running.ended()
    kinds = [each["kind"] for each in link.reports]
    assert kinds[:2] == ["request", "announced"]
    assert link.reports[0]["command"] == "history"
    assert kinds.count("request") == 1


class AbsentBroker(Link):
    """A broker that has been away for longer than a worker waits."""

    def history(self, study, after):
        raise BackendError("the broker does not answer")


def test_an_objective_that_can_have_no_history_is_given_up(trainer, tmp_path):
    link = AbsentBroker()
    running = begin(trainer, link, task_with_tools(tmp_path))
    assert running.ended() == {"dropped": "fenced off"}
    assert not link.of_kind("announced")


@pytest.mark.extension("nas")
@pytest.mark.parametrize("rank", [0, 1])
def test_of_a_gang_only_the_first_member_says_that_the_model_is_over_a_bound(trainer, rank):
    from user_code import nas_code

    link = Link()
    task = segment(
        nas_code.bounded, trial="s-0001", metric="epochs", rank=rank, queues=("a.s0", "b.s0"),
        params={"width": 2, "op": "linear"}, bounds=(("size", 13.0),),
    )  # fmt: skip
    assert begin(trainer, link, task).ended() == {"returned": None}
    said = [(each["constraints"], each["pruned"]) for each in link.of("s-0001", "returned")]
    assert said == ([] if rank else [({"size": 1.0}, True)])
