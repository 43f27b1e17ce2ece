"""A trainer's messages reach the session of their run, whichever thread reads them."""

from __future__ import annotations

import queue
import threading
import time

import pytest
from patience import PATIENCE, until
from penstock.app.node.sessions.conversations import Conversations, TrainerGone
from penstock.app.node.worker.keeper import IdleTrainers

A, B = ("t-0000", 1), ("t-0001", 2)


class Trainer:
    """A trainer whose messages are read from ``said``; an exception in it is raised."""

    def __init__(self):
        self.said = queue.Queue()
        self.readers = set()
        self.reading = threading.Semaphore(1)
        self.conversations = Conversations(self.read)

    def read(self, timeout):
        assert self.reading.acquire(blocking=False), "two read at once"
        self.readers.add(threading.get_ident())
        try:
            said = self.said.get(timeout=timeout) if timeout else self.said.get_nowait()
        except queue.Empty:
            return None
        finally:
            self.reading.release()
        if isinstance(said, Exception):
            raise said
        return said

    def says(self, run, op="epoch", **fields):
        self.said.put({"op": op, "trial": run[0], "fence": run[1], **fields})

    def next(self, run, timeout=PATIENCE, durable=lambda _: None):
        return self.conversations.next(run, timeout, durable)


@pytest.fixture
def trainer():
    return Trainer()


class Session(threading.Thread):
    """Hears one run until it closes or the trainer has gone."""

    def __init__(self, trainer, run):
        super().__init__(daemon=True)
        self.trainer, self.run_key, self.heard = trainer, run, []
        self.behind = trainer.conversations.begin(run)
        self.start()

    def run(self):
        try:
            while not self.heard or not self.heard[-1].get("closes"):
                if (message := self.trainer.next(self.run_key, 0.05)) is not None:
                    self.heard.append(message)
        except TrainerGone as gone:
            self.heard.append(gone)
        self.trainer.conversations.end(self.run_key)


def test_each_session_hears_its_own_run_in_order_and_one_reads_at_a_time(trainer):
    sessions = [Session(trainer, run) for run in (A, B)]
    assert [each.behind for each in sessions] == [False, True]
    for n in range(500):
        trainer.says(A if n % 3 else B, n=n)
    for run in (A, B):
        trainer.says(run, n=500, closes=True)
    for each in sessions:
        each.join(PATIENCE)
    heard_a, heard_b = ([m["n"] for m in each.heard] for each in sessions)
    assert heard_a == [n for n in range(501) if n % 3 or n == 500]
    assert heard_b == [n for n in range(500) if n % 3 == 0] + [500]
    assert trainer.conversations.open == 0


def test_a_session_alone_reads_by_itself(trainer):
    trainer.conversations.begin(A)
    trainer.says(A, n=1)
    assert trainer.next(A)["n"] == 1
    assert trainer.readers == {threading.get_ident()}


def test_what_is_of_no_open_run_is_dropped(trainer):
    trainer.conversations.begin(A)
    trainer.says(B)
    trainer.says((A[0], 7))
    trainer.said.put({"op": "epoch", "trial": ["a", "list"], "fence": {}})
    trainer.said.put({})
    trainer.says(A, n=1)
    assert trainer.next(A)["n"] == 1


def test_ready_is_heard_by_all_and_a_durable_state_by_whoever_reads(trainer):
    for run in (A, B):
        trainer.conversations.begin(run)
    stored = []
    trainer.said.put({"op": "ready"})
    trainer.said.put({"op": "durable", "trial": "elsewhere"})
    trainer.says(A)
    assert [trainer.next(A, durable=stored.append)["op"] for _ in range(2)] == ["ready", "epoch"]
    assert [each["trial"] for each in stored] == ["elsewhere"]
    assert trainer.next(B)["op"] == "ready"


def test_a_trainer_that_talks_of_others_without_a_pause_does_not_hold_a_session(trainer):
    trainer.conversations.begin(A)
    over = threading.Event()

    def talk():
        while not over.is_set():
            trainer.says(B)

    talking = threading.Thread(target=talk, daemon=True)
    talking.start()
    assert trainer.next(A, 0.2) is None
    over.set()
    talking.join(PATIENCE)


def test_all_hear_of_the_end_after_what_was_said_before_it(trainer):
    sessions = [Session(trainer, run) for run in (A, B)]
    trainer.says(A, n=1)
    trainer.said.put(TrainerGone("signal 9"))
    for each in sessions:
        each.join(PATIENCE)
    assert [str(m) if isinstance(m, TrainerGone) else m["n"] for m in sessions[0].heard] == [
        1,
        "signal 9",
    ]
    assert [str(m) for m in sessions[1].heard] == ["signal 9"]


def test_nothing_said_is_none_after_the_timeout_for_readers_and_for_others(trainer):
    for run in (A, B):
        trainer.conversations.begin(run)
    found = queue.Queue()
    others = threading.Thread(target=lambda: found.put(trainer.next(B, 0.1)), daemon=True)
    others.start()
    assert trainer.next(A, 0.1) is None
    assert found.get(timeout=PATIENCE) is None
    assert trainer.next(A, -1.0) is None, "a time that has passed is one look"


def test_who_reads_alone_waits_for_a_session_or_is_told_of_it(trainer):
    session = Session(trainer, A)
    until(lambda: trainer.readers)
    with trainer.conversations.reading_alone(wait=True) as alone:
        assert alone
        with trainer.conversations.reading_alone(wait=False) as second:
            assert not second
        trainer.says(A, closes=True)
        time.sleep(0.1)
        assert not session.heard, "nobody else reads"
    session.join(PATIENCE)
    assert len(session.heard) == 1


def test_a_run_that_begins_while_an_idle_trainer_is_read_hears_all_of_it(trainer):
    """The reader of idle trainers has found a durable state; the run's epoch comes with it."""

    class Listener:
        def durable(self, _, message):
            trainer.conversations.begin(A)
            trainer.says(A, epoch=1)

    trainer.says(B, op="durable")
    IdleTrainers(Listener()).read(None, trainer)
    heard = trainer.conversations.next(A, 0.0, lambda _: None)
    assert heard == {"op": "epoch", "trial": A[0], "fence": A[1], "epoch": 1}
