"""Only the process that was started speaks for a trial: forked children of user code do not."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from patience import PATIENCE
from penstock.wire.identity import Identity
from trainers.trainer_process import TrainerProcess, segment
from user_code import hostile_objectives, trainees


@pytest.fixture
def trainer(tmp_path):
    with TrainerProcess(tmp_path / "log") as trainer:
        yield trainer


def told(trainer):
    """Count the log's messages that a child was ended; each also says what to do about it."""
    words = trainer.log.read_text()
    assert words.count("ran on into Penstock's code") == words.count("os._exit()")
    return words.count("ran on into Penstock's code")


def sockets(pid):
    links = [link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith("socket:")]


def test_a_child_that_runs_on_reports_nothing_and_returns_nothing(trainer):
    heard = trainer.carry_out(segment(hostile_objectives.forks_and_runs_on, 1, 9))
    assert [m["metrics"]["accuracy"] for m in heard if m["op"] == "epoch"] == [1.0, 1.0]
    assert (heard[-1]["op"], heard[-1]["value"]) == ("returned", 1.0)
    assert "the child ended with 1" in trainer.log.read_text()
    assert told(trainer) == 1
    # Nobody else has said anything, and the trainer goes on.
    heard = trainer.carry_out(segment(hostile_objectives.uses_a_pool, trial="s-0001"))
    assert [(m["op"], m["value"]) for m in heard] == [("returned", 14.0)]


def test_a_child_that_returns_raises_or_exits_is_not_taken_for_the_trial(trainer):
    heard = trainer.carry_out(segment(hostile_objectives.forks_and_returns))
    assert [(m["op"], m["value"]) for m in heard] == [("returned", 1.0)]
    words = trainer.log.read_text()
    assert [words.count(f"the child ended with {status}\n") for status in (1, 5)] == [2, 1]
    assert "ValueError: the child has lost its way" in words
    assert told(trainer) == 2


@pytest.mark.parametrize("code", [hostile_objectives.forks_in_a_loop, trainees.Forks])
def test_a_child_of_a_loop_or_of_a_trainable_is_ended_at_its_next_step(trainer, code):
    heard = trainer.carry_out(segment(code, 1, 2))
    said = [(m["op"], m["epoch"]) for m in heard if m["op"] != "progress"]
    assert said == [("epoch", 1), ("epoch", 2)]
    assert told(trainer) >= 2


def test_a_trainer_that_is_killed_is_heard_of_though_a_child_of_it_lives(trainer):
    trainer.run(segment(hostile_objectives.dies_beside_a_child, 1, 9))
    (said,) = trainer.hear_until("epoch")
    child = int(said["metrics"]["accuracy"])
    try:
        assert sockets(trainer.process.pid)
        assert sockets(child) == []
        trainer.process.kill()
        assert trainer.lines.readline() == b""
        os.kill(child, 0)  # it lives
        trainer.process.wait(PATIENCE)
        holder = Identity.parse(trainer.identity)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((holder.address, holder.port), PATIENCE)
    finally:
        os.kill(child, signal.SIGKILL)
