"""Models of different architectures in one lane: what they have in common is done once."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from penstock.extensions.fusion.fusion import Fusion
from penstock.extensions.sharing.streams import Streams
from penstock.tasks.trainer.made_once import TrackedParams
from penstock.tasks.trainer.shared_data import SharedData
from penstock.tasks.training import loop
from trainers.trainer_process import (
    ENDLESS,
    alone_hashes,
    as_far,
    hashes,
    hear_all,
    segment,
    train_until,
)
from user_code import streamed_code
from user_code.fused_code import quiet, rows
from user_code.nas_shared_code import Frozen, FrozenNoted, InMemory, ReadByPython, ReadsItsChoices

pytestmark = pytest.mark.extension("nas", "sharing")

#: Four of one structure, and two others.
ALIKE = [
    {"op": "tanh", "width": 8, "dropout": dropout, "lr": lr}
    for dropout, lr in ((0.0, 0.1), (0.3, 0.1), (0.6, 0.1), (0.0, 0.05))
]
OTHERS = [{**ALIKE[0], "width": 16}, {**ALIKE[0], "op": "deep"}]


def tasks_of(code, epochs, **params):
    return [
        segment(
            *(code, 1, epochs),
            trial=f"s-{n:04}",
            fence=n + 1,
            ext={"fusion": {}},
            replicate=0,
            params=own | params,
        )
        for n, own in enumerate(ALIKE + OTHERS)
    ]


def seated(lane, alone, code, met):
    """The epochs of those alike and of the others in a lane, with the bits of each alone.

    They go on until ``met`` holds for the epochs of both.
    """
    tasks = tasks_of(code, ENDLESS)
    of_alike = {each.trial for each in tasks[: len(ALIKE)]}

    def parts(heard):
        found = [m for m in heard if m["op"] == "epoch"]
        alike = [m for m in found if m["trial"] in of_alike]
        return alike, [m for m in found if m["trial"] not in of_alike]

    heard = train_until(lane, tasks, lambda heard: met(*parts(heard)))
    assert hashes(heard) == alone_hashes(alone, as_far(tasks, heard))
    return parts(heard)


@pytest.mark.extension("lanes")
@pytest.mark.parametrize("code", [InMemory, Frozen])
def test_those_of_one_structure_are_trained_together_and_the_others_in_turns(
    alone, large_lane, code
):
    _, others = seated(
        *(large_lane, alone, code),
        lambda alike, others: others and any(m.get("together", 1) > 1 for m in alike),
    )
    assert {m.get("together", 1) for m in others} == {1}


@pytest.mark.extension("lanes")
def test_what_python_reads_is_read_once_for_different_architectures(alone, large_lane):
    alike, others = seated(
        *(large_lane, alone, ReadByPython),
        lambda alike, others: alike and any(m["readers"] > 1 for m in others),
    )
    assert {m.get("together", 1) for m in alike + others} == {0}


@pytest.mark.extension("lanes")
def test_activations_are_computed_once_for_different_heads(large_lane, tmp_path):
    tasks = tasks_of(FrozenNoted, 3, file=str(tmp_path / "computed"))
    for each in tasks:
        large_lane.run(each)
    heard = hear_all(large_lane, tasks)
    assert len(hashes(heard)) == 3 * len(tasks)
    assert sum(map(int, (tmp_path / "computed").read_text().split())) == 150 + 30 + 20


@pytest.fixture
def started(one_thread):
    """Trials of all architectures that begin in this process, with what a trainer has."""

    def begin(code, streams=None):
        data, made = SharedData(), []
        for n, own in enumerate(ALIKE + OTHERS):
            reads = TrackedParams(own)
            trial = code(reads)
            run = loop.start(trial, data.of(trial, reads), 7, 0, device=torch.device("cpu"))
            if streams is not None:
                streams.join(f"s-{n}", run)
                run.turn = SimpleNamespace(clock=time.perf_counter, is_over=lambda: False)
            made.append(run)
        return made

    return begin


def test_each_example_is_read_once_for_all_architectures(started):
    runs = started(ReadByPython, Streams(lambda: 1 << 24))
    streamed_code.READ.clear()
    for run in runs:
        loop.run_epoch(run, quiet)
    assert len(streamed_code.READ) == 80 + 10


@pytest.mark.usefixtures("whatever_it_takes")
def test_a_dropout_that_was_chosen_is_each_trials_own(started):
    fusion, together, apart = Fusion(), started(InMemory)[:4], started(InMemory)[:4]
    for _ in range(3):
        found = fusion.run_epochs(rows(together))
        assert max(outcome.group_size for outcome in found) > 1
        for run, like, outcome in zip(together, apart, found, strict=True):
            assert loop.run_epoch(like, quiet).metrics == outcome.metrics
            assert run.hash() == like.hash()
    assert fusion.refusal(together[0]) == ""
    assert together[0].model.architecture == {"width": 8, "op": "tanh", "dropout": 0.0}


@pytest.mark.usefixtures("whatever_it_takes")
def test_a_forward_that_reads_what_was_chosen_is_each_trials_own(started):
    fusion, together, apart = Fusion(), started(ReadsItsChoices)[:4], started(ReadsItsChoices)[:4]
    found = fusion.run_epochs(rows(together))
    for run, like, outcome in zip(together, apart, found, strict=True):
        assert loop.run_epoch(like, quiet).metrics == outcome.metrics
        assert run.hash() == like.hash()
    assert "TypeError" in fusion.refusal(together[0]), "nobody's choices are taken for all"
