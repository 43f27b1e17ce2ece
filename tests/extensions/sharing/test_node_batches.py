"""Trials in several trainers of a node read each batch once, and keep their bits."""

from __future__ import annotations

import time
from contextlib import ExitStack
from fractions import Fraction

import pytest
import torch
from patience import PATIENCE
from penstock.extensions.sharing.node import clear, folder_of
from penstock.extensions.sharing.node_batches import JUDGED, TIMED, NodeBatches
from penstock.extensions.sharing.node_cache import NodeCache
from trainers.trainer_process import TrainerProcess, alone_hashes, hashes, segment
from user_code.streamed_code import ReadAndLogged

EPOCHS = 8


@pytest.fixture
def kept(tmp_path):
    yield tmp_path / "kept"
    clear(tmp_path / "kept")


def tasks(log, count=2, **changes):
    return [
        segment(
            ReadAndLogged, n=EPOCHS, trial=f"s-{k:04d}", replicate=0,
            params={"lr": 0.1 / (k + 1), "scale": 1, "log": str(log)}, **changes,
        )
        for k in range(count)
    ]  # fmt: skip


def train_beside(tmp_path, kept, runs):
    """Train each in a trainer of its own, all at once; the hashes."""
    with ExitStack() as stack:
        trainers = [
            stack.enter_context(TrainerProcess(tmp_path / f"log-{k}", kept=kept))
            for k in range(len(runs))
        ]
        for trainer, run in zip(trainers, runs, strict=True):
            trainer.run(run)
        found = {}
        for trainer in trainers:
            found |= hashes(trainer.hear_out())
        return found


def alone(tmp_path, count=2):
    log = tmp_path / "alone"
    with TrainerProcess(tmp_path / "log") as trainer:
        found = alone_hashes(trainer, tasks(log, count))
    return found, log.stat().st_size


def test_trials_of_two_trainers_read_most_batches_once(tmp_path, kept):
    expected, apart = alone(tmp_path)
    assert apart == 2 * EPOCHS * 90
    began = time.monotonic()
    read = apart
    while read > 0.75 * apart:  # on a busy machine one may be over before the other begins
        assert time.monotonic() - began < PATIENCE
        log = tmp_path / f"{time.monotonic()}"
        assert train_beside(tmp_path, kept, tasks(log)) == expected
        read = log.stat().st_size


def test_a_claim_of_a_trainer_that_died_holds_nobody_up_for_long(tmp_path, kept):
    expected, _ = alone(tmp_path)
    runs = tasks(tmp_path / "first")
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(TrainerProcess(tmp_path / f"log-{k}", kept=kept)) for k in range(2)
        )
        one.run(runs[0])
        other.run(runs[1])
        other.hear_until("epoch")
        one.process.kill()
        one.process.wait()
        found = hashes(other.hear_out())
        last = {name: state for name, state in expected.items() if name[0] == runs[1].trial}
        assert last.items() >= found.items()
        assert (runs[1].trial, EPOCHS) in found


def test_what_says_that_it_is_other_data_is_read_apart(tmp_path, kept):
    """``data()`` has read a parameter that differs, so nothing is known to be the same."""
    one, other = tmp_path / "one", tmp_path / "other"
    runs = [tasks(one)[0], tasks(other)[1]]
    assert len(train_beside(tmp_path, kept, runs)) == 2 * EPOCHS
    # And two examples of each, by which data sets are told apart.
    assert one.stat().st_size in {EPOCHS * 90, EPOCHS * 90 + 2}
    assert other.stat().st_size in {EPOCHS * 90, EPOCHS * 90 + 2}


class Clock:
    """A clock that nobody else's work moves: every look takes a microsecond, sleep as long as said.

    It is ``beside``'s, so a busy machine makes no way of reading look slower than it is.
    """

    now = 0.0

    def __call__(self):
        self.now += 1e-6
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def beside(tmp_path, clock):
    """A trial's batches, where another trainer says that it reads the same, and what was read."""
    caches = [NodeCache(tmp_path / "memory", lambda: 1 << 24, reader) for reader in ("1", "2")]
    batches = [
        NodeBatches(cache, "study", "source", clock=clock, sleep=clock.sleep) for cache in caches
    ]
    for cache, each in zip(caches, batches, strict=True):
        assert cache.open()
        cache.others(each._source)
    return caches[0], *batches


def got(batches, count, seconds, first=0, made=lambda number: torch.full((4,), number)):
    """Return ``count`` batches from ``first`` on, each read in ``seconds`` seconds."""
    items = [(first + n, torch.tensor([n])) for n in range(count)]

    def read(item):
        batches._sleep(seconds)
        return made(item[0])

    data = range(100)
    return [int(batches.get(data, items, n, read)[0]) for n in range(count)]


def test_batches_that_are_read_as_fast_as_they_are_handed_over_are_not_shared(beside):
    cache, batches, _ = beside
    assert got(batches, 100, 0.0) == [*range(100)]
    assert "handed over between trainers in" in batches.apart
    assert not batches.found()
    assert len([*cache._folder.glob("*.reader")]) == 2, "the other one is there"
    assert len([each for each in cache._folder.iterdir() if each.suffix != ".reader"]) <= 1


def test_where_the_others_are_in_the_way_batches_are_read_alone_and_ever_more_of_them(
    beside, monkeypatch
):
    """Each batch is claimed by who never reads it."""
    cache, batches, _ = beside
    asked = []
    monkeypatch.setattr(cache, "claim", lambda name: bool(asked.append(name)))
    assert got(batches, TIMED + JUDGED, 0.004) == [*range(TIMED + JUDGED)]
    assert len({*asked}) >= JUDGED
    for first, alone in ((1000, JUDGED), (2000, 2 * JUDGED)):
        asked.clear()
        assert got(batches, alone, 0.004, first) == [*range(first, first + alone)]
        assert not asked
        got(batches, JUDGED, 0.004, first + alone)
        assert asked
    assert "took as long as reading them" in batches.apart


def test_what_cannot_be_handed_over_is_read_by_each(beside):
    _, batches, _ = beside
    found = got(batches, TIMED + 4, 0.004, made=lambda number: [Fraction(number)])
    assert found == [*range(TIMED + 4)]
    assert "not plain tensors" in batches.apart


def test_a_trial_knows_whether_others_have_read_for_it(beside):
    _, one, other = beside
    got(one, TIMED, 0.02)
    got(other, TIMED, 0.02)
    assert not other.found()
    got(one, 10, 0.02, 100)
    assert not one.found(), "it has read all of these itself"
    assert got(other, 10, 0.02, 100) == [*range(100, 110)]
    assert other.found()
    assert other.apart == ""
    assert not other.found(), "that was the epoch before"


def test_trials_with_numbers_of_their_own_share_nothing(tmp_path, kept):
    log = tmp_path / "log-all"
    train_beside(
        tmp_path, kept, [each.model_copy(update={"replicate": None}) for each in tasks(log)]
    )
    assert log.stat().st_size == 2 * EPOCHS * 90
    assert not folder_of(kept).exists()
