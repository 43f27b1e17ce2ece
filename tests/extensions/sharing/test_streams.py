"""Trials of a lane with equal random numbers read each batch once, and keep their bits."""

from __future__ import annotations

import random
import threading
import time

import pytest
import torch
from penstock.extensions.sharing.streams import BATCHES, Streams, copied, is_copyable
from penstock.tasks.trainer.made_once import TrackedParams
from penstock.tasks.trainer.shared_data import SharedData
from penstock.tasks.training import loop
from torch import nn
from trainers.trainer_process import ENDLESS, alone_hashes, hashes, hear_all, segment, train_until
from user_code.streamed_code import PAUSE, READ, InPlace, MayFail, Noisy, ReadSlowly, StepsSlowly


@pytest.fixture(autouse=True)
def _nothing_read(one_thread):
    READ.clear()


class InTurn:
    """A turn that is not passed on: the tests take turns by themselves."""

    clock = staticmethod(time.perf_counter)

    def is_over(self):
        return False

    def pass_on(self):
        raise AssertionError("its turn is not over")


def trials(count, code=Noisy, capacity=1 << 24, numbers=None, shards=1):
    """Trials that share their data and, where there is one, a stream."""
    data, streams = SharedData(), None if capacity is None else Streams(lambda: capacity)
    made = []
    for k in range(count):
        reads = TrackedParams({"lr": 0.1 / (k + 1), "scale": 1 + k})
        own = code(reads)
        number = 0 if numbers is None else numbers[k]
        run = loop.start(own, data.of(own, reads), 7, number, shards, device=torch.device("cpu"))
        if streams is not None:
            streams.join(f"s-{k}", run)
            run.turn = InTurn()
        made.append(run)
    return made, streams


def in_turns(runs, epochs, order):
    """Train, a step of the trial that ``order`` draws at a time; the metrics and the last hash."""
    go = [threading.Semaphore(0) for _ in runs]
    back, over, outcomes = threading.Semaphore(0), set(), {}

    def train(k):
        def tick(*_):
            back.release()
            go[k].acquire()

        go[k].acquire()
        torch.use_deterministic_algorithms(mode=True)
        found = [loop.run_epoch(runs[k], tick).metrics for _ in range(epochs)]
        outcomes[k] = found, runs[k].hash()
        over.add(k)
        back.release()

    threads = [threading.Thread(target=train, args=(k,), daemon=True) for k in range(len(runs))]
    for each in threads:
        each.start()
    while left := [k for k in range(len(runs)) if k not in over]:
        k = order(left)
        # What the process has once is each trial's own between two steps, as in a lane.
        go[k].release()
        back.acquire()
    return outcomes


def alone(count, code=Noisy, epochs=2, **others):
    """Return the metrics and the hash of each trial without a stream."""
    runs, _ = trials(count, code, None, **others)
    return {
        k: ([loop.run_epoch(run, lambda *_: None).metrics for _ in range(epochs)], run.hash())
        for k, run in enumerate(runs)
    }


def one_by_one():
    place = [-1]

    def order(left):
        place[0] += 1
        return left[place[0] % len(left)]

    return order


def test_what_trials_have_in_common_is_read_once():
    expected = alone(3)
    READ.clear()
    runs, streams = trials(3)
    assert in_turns(runs, 2, one_by_one()) == expected
    assert len(READ) == 2 * 90
    assert streams.found == 2 * 2 * 5
    assert len(streams._kept) == 0, "the last one has taken each"


@pytest.mark.parametrize("seed", range(4))
def test_whoever_leads_and_lags_all_have_their_bits(seed):
    expected = alone(3, InPlace)
    draw = random.Random(seed)
    weights = [draw.random() ** 3 for _ in range(3)]
    runs, _ = trials(3, InPlace)
    assert (
        in_turns(runs, 2, lambda left: draw.choices(left, [weights[k] for k in left])[0])
        == expected
    )


def test_who_is_beyond_the_bound_reads_for_itself_to_the_same_bits():
    expected = alone(2)
    batch = 20 * (4 * 4 + 8)
    runs, streams = trials(2, capacity=4 * 2 * batch)
    READ.clear()
    assert in_turns(runs, 2, min) == expected, "the first is over before the second begins"
    assert streams.found < 5
    assert len(READ) > 2 * 90
    assert streams._bytes <= 2 * batch


def test_shards_are_read_once_too():
    expected = alone(2, shards=2)
    READ.clear()
    runs, streams = trials(2, shards=2)
    assert in_turns(runs, 2, one_by_one()) == expected
    assert len(READ) == 2 * 90
    assert streams.found == 2 * (4 * 2 + 1)


def test_nothing_is_kept_for_trials_that_are_not_at_work():
    asked = []
    runs, streams = trials(3)
    streams._capacity = lambda: asked.append(None) or 1 << 24
    runs[1].turn = runs[2].turn = None
    loop.run_epoch(runs[0], lambda *_: None)
    assert not streams._kept
    assert not asked, "to ask what memory there is takes time"


def test_there_is_a_bound_in_batches_too(monkeypatch):
    monkeypatch.setattr("penstock.extensions.sharing.streams.BATCHES", 3)
    runs, streams = trials(2)
    loop.run_epoch(runs[0], lambda *_: None)
    assert len(streams._kept) == 3 < BATCHES


def test_trials_with_random_numbers_of_their_own_keep_nothing():
    runs, streams = trials(2, numbers=[0, 1])
    loop.run_epoch(runs[0], lambda *_: None)
    assert len(streams._kept) == 0


def test_trials_of_other_batch_sizes_keep_nothing_for_each_other():
    runs, streams = trials(2)
    runs[1].batch_size = 10
    loop.run_epoch(runs[0], lambda *_: None)
    assert len(streams._kept) == 0


def test_nothing_is_kept_for_one_that_is_gone():
    runs, streams = trials(2)
    loop.run_epoch(runs[0], lambda *_: None)
    assert len(streams._kept) == 5
    streams.forget("s-1")
    assert len(streams._kept) == streams._bytes == 0


def test_nothing_is_kept_for_one_that_is_far_ahead_or_behind():
    runs, streams = trials(2)
    loop.run_epoch(runs[0], lambda *_: None)
    for _ in range(2):
        runs[0].begin_epoch()
    before = len(streams._kept)
    loop.run_epoch(runs[0], lambda *_: None)
    assert len(streams._kept) == before, "the other one is three epochs behind"


def aliased():
    whole = torch.zeros(4)
    return [whole[:2], whole[2:]]


@pytest.mark.parametrize(
    "batch",
    [
        [torch.zeros(2), object()],
        [torch.zeros(2), bytearray(2)],
        [nn.Parameter(torch.zeros(2))],
        [torch.zeros(2, requires_grad=True)],
        aliased(),
    ],
    ids=["object", "buffer", "parameter", "gradient", "aliased"],
)
def test_what_a_copy_could_not_stand_for_is_read_by_each(batch):
    assert not is_copyable(batch)


def test_a_copy_has_all_that_the_batch_has_and_nothing_in_common_with_it():
    batch = {"x": torch.randn(3, 2).t(), "names": ["a", "b"], "y": (torch.arange(2), 3, None)}
    assert is_copyable(batch)
    made = copied(batch)
    assert torch.equal(made["x"], batch["x"])
    assert made["x"].stride() == batch["x"].stride()
    assert made["names"] == batch["names"]
    assert made["names"] is not batch["names"]
    made["x"].zero_()
    made["y"][0].zero_()
    assert batch["x"].any()
    assert batch["y"][0].any()


@pytest.mark.extension("lanes")
def test_in_a_lane_and_alone_trials_have_the_same_bits(alone, lane):
    tasks = [segment(Noisy, 1, 5, trial=f"s-{n:04}", fence=n + 1, replicate=0) for n in range(4)]
    for i, each in enumerate(tasks):
        tasks[i] = each.model_copy(update={"params": {"lr": 0.1 / (i + 1)}})
        lane.run(tasks[i])
    heard = hear_all(lane, tasks)
    assert hashes(heard) == alone_hashes(alone, tasks)
    assert len(hashes(heard)) == 20


@pytest.mark.extension("lanes")
def test_one_that_is_stopped_or_fails_leaves_the_others_their_bits(alone, lane):
    def task(n, epochs=8, *, fails=False):
        fields = {"fence": n + 1, "replicate": 0, "params": {"lr": 0.1 / (n + 1), "fails": fails}}
        return segment(MayFail, 1, epochs, trial=f"s-{n:04}", **fields)

    tasks = [task(0), task(1, epochs=200), task(2, fails=True), task(3)]
    for each in tasks:
        lane.run(each)
    heard = lane.hear_until("epoch")
    lane.say(op="stop", trial=tasks[1].trial, fence=tasks[1].fence)
    heard += hear_all(lane, tasks)
    assert {m["trial"] for m in heard if m["op"] == "stopped"} == {tasks[1].trial}
    assert {m["trial"] for m in heard if m["op"] == "failed"} == {tasks[2].trial}
    kept = {name: value for name, value in hashes(heard).items() if name[0] in ("s-0000", "s-0003")}
    expected = hashes(alone.carry_out(tasks[0])) | hashes(alone.carry_out(tasks[3]))
    assert kept == expected


def test_a_batch_of_other_examples_or_data_is_not_given_whatever_the_key():
    runs, _ = trials(2)
    here, there = (run.batches for run in runs)
    data, examples = runs[0].data.train, torch.arange(3)
    here.get(data, [(5, examples)], 0, lambda _: torch.zeros(3))
    assert there.get(data, [(5, examples + 1)], 0, lambda _: torch.ones(3)).all()
    assert there.get(runs[0].data.validation, [(5, examples)], 0, lambda _: torch.ones(3)).all()
    assert not there.get(data, [(5, examples)], 0, lambda _: torch.ones(3)).any()


def tasks_of(code, count, epochs=6, **fields):
    made = {"ext": {"fusion": {}}, "replicate": 0, **fields}
    return [segment(code, 1, epochs, trial=f"s-{n:04}", fence=n + 1, **made) for n in range(count)]


def reported(lane, code, count, epochs=6, **fields):
    """Return the reported epochs of ``count`` trials of a lane."""
    tasks = tasks_of(code, count, epochs, **fields)
    for each in tasks:
        lane.run(each)
    return [m for m in hear_all(lane, tasks) if m["op"] in ("epoch", "remarked")]


@pytest.mark.extension("lanes", "fusion")
def test_a_trial_alone_says_that_reading_once_would_pay(lane):
    said, *epochs = reported(lane, ReadSlowly, 1)
    assert "example by example" in said["text"]
    assert "read once" in said["text"]
    assert {(m["together"], m["readers"], m["alone"]) for m in epochs} == {(0, 1, 0.0)}


@pytest.mark.extension("lanes", "fusion")
def test_trials_that_read_once_say_what_each_takes_alone(lane):
    def met(heard):
        return sum(m.get("readers") == 4 for m in heard) >= 12

    heard = train_until(lane, tasks_of(ReadSlowly, 4, ENDLESS), met)
    epochs = [m for m in heard if m["op"] == "epoch"]
    assert {m["together"] for m in epochs} == {0}
    shared = [m for m in epochs if m["readers"] > 1]
    assert all(m["alone"] > 90 * PAUSE for m in shared), (
        "no sleep is shorter than it was asked to be"
    )
    assert sum(m["seconds"] for m in shared) < 0.6 * sum(m["alone"] for m in shared)


@pytest.mark.extension("lanes", "fusion")
@pytest.mark.parametrize(
    ("code", "fields"),
    [(StepsSlowly, {}), (ReadSlowly, {"replicate": None}), (ReadSlowly, {"ext": {}})],
    ids=["steps", "keys", "off"],
)
def test_where_reading_once_does_not_pay_or_cannot_be_nothing_is_said_of_it(lane, code, fields):
    found = reported(lane, code, 2, 2, **fields)
    assert {m["readers"] for m in found if m["op"] == "epoch"} == {0}
    assert not any("read once" in m["text"] for m in found if m["op"] == "remarked")


def test_what_cannot_be_copied_does_not_pay():
    runs, streams = trials(1, ReadSlowly)
    runs[0].begin_epoch()
    for key in range(8):
        items = [(key, torch.arange(3))]
        runs[0].batches.get(runs[0].data.train, items, 0, lambda _: time.sleep(0.01))
    assert streams.shared("s-0", 0.1, 0.95) == (1, 0.0), "None is copied as it is"
    runs, streams = trials(1, ReadSlowly)
    runs[0].begin_epoch()
    runs[0].batches.get(runs[0].data.train, [(1, torch.arange(3))], 0, lambda _: object())
    assert streams.shared("s-0", 0.1, 0.95) == (0, 0.0)
