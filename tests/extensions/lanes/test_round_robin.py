"""The order and length of turns, and the part of them that the worker can see."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter

import torch
from patience import until
from penstock.extensions.lanes.host_state import Generators
from penstock.extensions.lanes.round_robin import RoundRobin
from penstock.extensions.lanes.turn_page import TurnPage
from penstock.extensions.lanes.turns import Turns

STEPS = {"short": 0.001, "long": 0.5, "odd": 0.03}


def shares(robin, total):
    """Return the time of ``total`` that each name has had; its steps cannot be interrupted."""
    had = Counter()
    while had.total() < total:
        name = robin.next()
        credit, used = robin.credit(name), 0.0
        while used < credit:
            used += STEPS[name]
        robin.use(name, used)
        had[name] += used
    return had


def test_each_has_its_share_however_long_its_steps_are():
    robin = RoundRobin(0.02)
    for name in STEPS:
        robin.join(name)
    had = shares(robin, 60.0)
    for name, seconds in had.items():
        assert abs(seconds - 20.0) <= STEPS[name] + 1.0, had


def test_shares_follow_the_weights():
    robin = RoundRobin(0.02)
    for name, weight in (("short", 1.0), ("odd", 2.0), ("long", 5.0)):
        robin.join(name)
        robin.weigh(name, weight)
    had = shares(robin, 80.0)
    assert [round(had[name] / 10) for name in ("short", "odd", "long")] == [1, 2, 5]


def test_weight_0_has_a_turn_only_where_nobody_else_wants_one():
    robin = RoundRobin(0.02)
    robin.join("short")
    robin.join("odd")
    robin.weigh("odd", 0.0)
    assert set(shares(robin, 1.0)) == {"short"}
    robin.leave("short")
    assert robin.next() == "odd"
    robin.leave("odd")
    assert robin.next() is None


def test_a_newcomer_is_next():
    robin = RoundRobin(0.02)
    for name in STEPS:
        robin.join(name)
        assert robin.next() == name


def test_a_trial_that_comes_back_still_owes_what_it_owed():
    turns, order = Turns(Generators(torch.device("cpu")), quantum=0.01), []
    first = turns.enter("a", 1, lambda: None)
    time.sleep(0.6)  # a step that is twenty times as long as all of the other trial
    turns.leave(first)
    holder = turns.enter("c", 9, lambda: None)

    def work(trial, fence):
        turn = turns.enter(trial, fence, lambda: None)
        for _ in range(30 if trial == "b" else 1):
            order.append(trial)
            time.sleep(0.001)
            if turn.is_over():
                turn.pass_on()
        turns.leave(turn)

    threads = [threading.Thread(target=work, args=each) for each in (("b", 3), ("a", 2))]
    for seated, thread in enumerate(threads, start=2):
        thread.start()
        until(lambda seated=seated: len(list(turns._robin)) == seated)
    turns.leave(holder)
    for thread in threads:
        thread.join()
    assert order == ["b"] * 30 + ["a"]


def test_the_page_tells_another_process_whose_turn_it_is_and_outlives_the_writer(tmp_path):
    page = TurnPage(tmp_path / "page", 2, new=True)
    child = os.fork()
    if child == 0:
        writer = TurnPage(tmp_path / "page", 2)
        writer.had(7, 1.5)
        writer.turn(9, time.monotonic())
        while True:
            time.sleep(1)
    until(lambda: page.in_turn == 9)
    assert page.seconds(7) == 1.5
    before = page.seconds(9)
    until(lambda: page.seconds(9) > before)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert page.in_turn == 9
    page.remove()
    assert not (tmp_path / "page").exists()


def test_a_reader_never_sees_half_of_a_change(tmp_path):
    page = TurnPage(tmp_path / "page", 1, new=True)
    writer, over = TurnPage(tmp_path / "page", 1), threading.Event()

    def write():
        n = 0
        while not over.is_set():
            n += 1
            writer._rows.clear()
            writer.had(n, float(n))
            writer.turn(n, 1.0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(20_000):
            in_turn, _, rows = page._read()
            assert rows == {in_turn: float(in_turn)}
    finally:
        over.set()
        thread.join()
