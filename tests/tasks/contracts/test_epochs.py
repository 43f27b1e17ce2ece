"""Epoch functions in the real trainer process: paused, taken up from the store, and wrong."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from penstock import UsageError, epoch_function
from penstock.tasks.contracts.suspended import PAUSED_KEPT
from trainers.trainer_process import TrainerProcess, known, segment
from user_code import epoch_functions as functions


@pytest.fixture
def store(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    with TrainerProcess(tmp_path_factory.mktemp("one") / "log") as trainer:
        yield trainer


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    with TrainerProcess(tmp_path_factory.mktemp("another") / "log") as trainer:
        yield trainer


_numbers = itertools.count()


@pytest.fixture
def trial():
    """One that no test before has left in a trainer's memory."""
    return f"s-{next(_numbers):04}"


def epochs(heard):
    return [(m["epoch"], m["closes"]) for m in heard if m["op"] == "epoch"]


def values(heard):
    return [m["metrics"]["accuracy"] for m in heard if m["op"] == "epoch"]


def trained_again(heard):
    return [m["text"].split()[2] for m in heard if m["op"] == "progress"]


def test_a_function_stands_still_between_epochs_and_goes_on_in_place(trainer, store, trial):
    heard = trainer.carry_out(segment(functions.adds, 1, 2, trial=trial, store=store))
    assert epochs(heard) == [(1, False), (2, True)]
    for message in heard:
        assert Path(message["uri"].removeprefix("file://")).exists(), (
            "in the store before it counts"
        )
    more = trainer.carry_out(
        segment(functions.adds, 3, 2, trial=trial, store=store, fence=2, **known(trainer, heard))
    )
    assert epochs(more) == [(3, False), (4, True)]
    assert trained_again(more) == []
    assert values(heard + more) == sorted(values(heard + more))
    assert more[0]["fence"] == 2


def test_another_trainer_takes_it_up_from_the_store_and_draws_the_same_numbers(
    trainer, another, store, trial
):
    alone = trainer.carry_out(segment(functions.adds, 1, 4, trial=trial, store=store))
    moved = another.carry_out(
        segment(
            functions.adds, 3, 2, trial=trial, store=store, fence=2, **known(trainer, alone[:2])
        )
    )
    assert epochs(moved) == [(3, False), (4, True)]
    assert trained_again(moved) == []
    assert values(moved) == values(alone)[2:]


def test_epochs_since_the_last_checkpoint_are_trained_again_and_not_reported_again(
    trainer, another, store, trial
):
    task = {"store": store, "params": {"every": 3}}
    alone = trainer.carry_out(segment(functions.adds, 1, 6, trial=trial, **task))
    assert [bool(m["uri"]) for m in alone] == [False, False, True] * 2
    moved = another.carry_out(
        segment(functions.adds, 6, 1, trial=trial, fence=2, **task, **known(trainer, alone[:5]))
    )
    assert trained_again(moved) == ["4", "5"]
    assert epochs(moved) == [(6, True)]
    assert values(moved) == values(alone)[5:]
    assert moved[-1]["state_hash"] == alone[-1]["state_hash"]


@pytest.mark.parametrize("function", [functions.keeps_nothing, functions.never_loads])
def test_a_function_without_checkpoints_or_without_load_begins_at_epoch_1(
    trainer, another, store, function, trial
):
    heard = trainer.carry_out(segment(function, 1, 3, trial=trial, store=store))
    moved = another.carry_out(
        segment(function, 4, 1, trial=trial, store=store, fence=2, **known(trainer, heard))
    )
    assert trained_again(moved) == ["1", "2", "3"]
    assert (epochs(moved), values(moved)) == ([(4, True)], [10.0])


def test_a_function_that_keeps_nothing_needs_no_torch():
    """In a process of its own: an idle trainer has imported it."""
    code = """
from types import SimpleNamespace
from user_code import epoch_functions
from penstock.tasks.contracts import epoch_function as epochs
from penstock.tasks.process import pipe
from penstock.tasks.contracts.code import reference
from penstock.wire.messages import CodeRef, SegmentTask
target, path, digest = reference(epoch_functions.keeps_nothing)
code = CodeRef(target=target, path=path, digest=digest)
task = SegmentTask(
    id="d1", study="s", trial="s-0000", number=0, contract="epochs", code=code, params={},
    metric="accuracy", seed=7, first=1, n=1, fence=1, queues=("q",), lease_ms=5000,
)
told = SimpleNamespace(say=lambda op, **said: op == "epoch" and print(said))
functions = epochs.EpochFunctions("here")
functions.run(pipe.Run(task, told), lambda: epoch_functions.keeps_nothing)
functions.release("s-0000")
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "'metrics': {'accuracy': 1.0, 'torch': 0.0}, 'state_hash': ''" in run.stdout


def test_a_thread_does_not_go_on_from_what_another_trainer_has_overtaken(
    trainer, another, store, trial
):
    """The other one's third epoch was accepted, so what counts is not in the first one's memory."""
    task = {"store": store, "trial": trial}
    heard = trainer.carry_out(segment(functions.adds, 1, 3, **task))
    two = known(trainer, heard[:2])
    # Its state differs by a hundred, as if its training had not come to the same bits.
    moved = another.carry_out(
        segment(functions.adds, 3, fence=2, params={"more": 100}, **task, **two)
    )
    three = known(another, heard[:2] + moved)
    again = trainer.carry_out(segment(functions.adds, 4, fence=3, **task, **three))
    assert (epochs(again), trained_again(again)) == ([(4, True)], [])
    assert values(again)[0] > 100


def test_without_checkpoints_it_does_not_either(trainer, another, trial):
    heard = trainer.carry_out(segment(functions.keeps_nothing, 1, 3, trial=trial))
    task = segment(functions.keeps_nothing, 4, trial=trial, fence=2, **known(another, heard))
    assert trained_again(trainer.carry_out(task)) == ["1", "2", "3"]


def test_what_was_fenced_off_ahead_is_sent_again_from_memory(trainer, store, trial):
    heard = trainer.carry_out(segment(functions.adds, 1, 3, trial=trial, store=store))
    again = trainer.carry_out(
        segment(
            functions.adds, 2, 3, trial=trial, store=store, fence=2, **known(trainer, heard[:1])
        )
    )
    assert epochs(again) == [(2, False), (3, False), (4, True)]
    assert again[0]["uri"] == heard[1]["uri"]
    assert trained_again(again) == []


def test_a_function_that_breaks_off_is_done_with_its_last_report(trainer, trial):
    params = {"stop": 2}
    heard = trainer.carry_out(segment(functions.stops_early, 1, 2, trial=trial, params=params))
    assert epochs(heard) == [(1, False), (2, False)], "it closes by returning"
    assert heard[-1]["op"] == "returned"
    assert heard[-1]["value"] is None
    assert "after the loop, epoch 2" in trainer.log.read_text()


def test_one_that_is_done_runs_its_finally_blocks_and_nothing_after_its_loop(trainer):
    trainer.carry_out(segment(functions.tidies, trial="s-8000"))
    trainer.say(op="release", trial="s-8000")
    trainer.carry_out(segment(functions.tidies, trial="s-8001"))
    printed = [each for each in trainer.printed() if each[0] in {"s-8000", "s-8001"}]
    assert printed == [("s-8000", "trial 8000 is unwound")]


def test_those_that_waited_longest_make_room_and_come_back_from_the_store(trainer, store):
    trials = [f"s-900{number}" for number in range(PAUSED_KEPT + 1)]
    heard = {
        trial: trainer.carry_out(segment(functions.adds, store=store, trial=trial))
        for trial in trials
    }
    assert len({value for said in heard.values() for value in values(said)}) == len(trials)
    for trial in trials:
        task = segment(
            functions.adds, 2, store=store, trial=trial, fence=2, **known(trainer, heard[trial])
        )
        assert epochs(trainer.carry_out(task)) == [(2, True)]


def test_one_that_is_fenced_off_ends_at_its_next_report(trainer, trial):
    trainer.run(segment(functions.keeps_nothing, 1, 1 << 20, trial=trial))
    trainer.hear()
    trainer.say(op="stop")
    assert trainer.hear_until("stopped")[-1]["fence"] == 1


WRONG = [
    (functions.raises_after_its_report, "exception", "ValueError: the plot failed"),
    (functions.reports_another_metric, "metric", "no metric 'accuracy'; those there are: f1"),
    (functions.reports_nan, "nan", "accuracy is nan after epoch 1"),
    (functions.reports_text, "exception", "metrics['accuracy'] = 'good' is refused"),
    (functions.reports_a_number, "exception", "metrics = 0.5 is refused"),
    (functions.reports_nothing, "metric", "epoch 1 ended without trial.report({'accuracy': ...})"),
    (functions.reports_twice, "exception", "epoch 1 was reported already"),
    (functions.reports_before_the_loop, "metric", "returned before it reported an epoch"),
    (functions.stores_before_the_loop, "exception", "checkpoint = {'done': 1} is refused"),
    (functions.loops_twice, "exception", "can be looped over once"),
    (functions.loads_in_the_loop, "exception", "belongs before the loop"),
    (functions.returns_at_once, "metric", "returned before it reported an epoch"),
    (functions.exits, "exit", "sys.exit(3)"),
    (
        functions.stores_itself,
        "exception",
        "checkpoint['model']['layers'][1] is a builtins.function",
    ),
    (functions.stores_nothing_much, "exception", "checkpoint = {} is refused"),
]


def test_a_function_is_left_in_place_where_its_segment_closes_by_time(trainer, store, trial):
    task = {"trial": trial, "store": store}
    heard = trainer.carry_out(segment(functions.adds, 1, 3, until=1.0, **task))
    assert epochs(heard) == [(1, True)]
    task |= known(trainer, heard)
    assert epochs(trainer.carry_out(segment(functions.adds, 2, 2, fence=2, **task))) == [
        (2, False),
        (3, True),
    ]


def test_what_a_function_does_wrong_is_said_and_counts_for_nothing(trainer, trial):
    for (code, kind, words), fence in zip(WRONG, itertools.count(1), strict=False):
        (failed,) = trainer.carry_out(segment(code, trial=trial, fence=fence))
        assert (code.__name__, failed["op"], failed["kind"]) == (code.__name__, "failed", kind)
        assert words in failed["message"]


def test_a_report_after_the_loop_is_refused_and_so_is_the_trial(trainer, trial):
    *_, failed = trainer.carry_out(segment(functions.reports_after_the_loop, trial=trial))
    assert "belongs in the loop over trial.epochs()" in failed["message"]


def test_after_an_exception_in_the_middle_a_trial_goes_on_from_its_last_epoch(
    trainer, store, trial
):
    first, failed = trainer.carry_out(
        segment(functions.raises_in_the_middle, 1, 3, trial=trial, store=store)
    )
    assert (first["epoch"], first["closes"]) == (1, False)
    assert (failed["op"], failed["message"]) == ("failed", "ValueError: the dog ate the batch")
    task = segment(
        functions.raises_in_the_middle,
        2,
        trial=trial,
        store=store,
        fence=2,
        **known(trainer, [first]),
    )
    *_, failed = trainer.carry_out(task)
    assert failed["op"] == "failed"


def test_while_the_store_is_away_an_epoch_waits_whatever_the_function_catches(
    trainer, tmp_path, trial
):
    (tmp_path / "file").touch()
    task = segment(functions.swallows, trial=trial, store=f"file://{tmp_path}/file/store")
    trainer.run(task)
    heard = trainer.hear_until("waiting")
    trainer.say(op="cut")
    heard += trainer.hear_until("broken")
    assert {message["op"] for message in heard} == {"undurable", "waiting", "broken"}
    assert "the state after epoch 1" in heard[-1]["reason"]
    assert trainer.log.read_text().count("swallowed Abandoned") == 1


def test_a_damaged_checkpoint_gives_way_to_an_older_one_and_all_damaged_ones_to_nobody(
    trainer, another, store, trial
):
    heard = trainer.carry_out(segment(functions.adds, 1, 3, trial=trial, store=store))
    files = [Path(m["uri"].removeprefix("file://")) for m in heard]
    files[1].write_bytes(b"torn")
    task = {"store": store, **known(trainer, heard[:2])}
    moved = another.carry_out(segment(functions.adds, 3, trial=trial, fence=2, **task))
    assert trained_again(moved) == ["2"]
    assert values(moved) == values(heard)[2:]
    assert "an older state is used" in another.log.read_text()
    files[0].unlink()
    another.say(op="release", trial=trial)
    (broken,) = another.carry_out(segment(functions.adds, 3, trial=trial, fence=3, **task))
    assert (broken["op"], "none of the trial's states" in broken["reason"]) == ("broken", True)


def test_the_guides_function_learns_and_is_taken_up_by_another_trainer(
    trainer, another, store, tmp_path, monkeypatch
):
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "other-code.md").read_text()
    (block,) = [b for b in re.findall(r"```python run\n(.*?)```", guide, re.S) if "epochs()" in b]
    (tmp_path / "guides_own.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    code = importlib.import_module("guides_own").train
    task = {"params": {"lr": 0.01, "hidden": 16}, "metric": "loss", "store": store}
    heard = trainer.carry_out(segment(code, 1, 9, **task))
    moved = another.carry_out(segment(code, 9, fence=2, **task, **known(trainer, heard[:8])))
    losses = [m["metrics"]["loss"] for m in heard]
    assert losses[-1] < losses[0] / 2
    assert moved[-1]["metrics"]["loss"] == losses[-1]


async def waits(trial):
    pass


def yields(trial):
    yield


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "@epoch_function = 3 is refused"),
        (dict, "@epoch_function = <class 'dict'>"),
        (print, "@epoch_function = <built-in function print>"),
        (waits, "a function of one argument"),
        (yields, "without yield"),
        (lambda: 0, "a function of one argument, the trial"),
        (lambda trial, data: 0, "missing a required argument: 'data'"),
    ],
)
def test_only_a_function_of_the_trial_can_be_marked(code, words):
    with pytest.raises(UsageError) as refusal:
        epoch_function(code)
    assert words in str(refusal.value)


def test_a_forked_trial_is_given_its_sources_checkpoint_and_must_load_it(trainer, store):
    source = trainer.carry_out(segment(functions.adds, 1, 2, store=store, trial="s-0900"))
    parents = known(trainer, source)["parents"][-1:]
    task = {"store": store, "origin": 2, "parents": parents}
    heard = trainer.carry_out(segment(functions.adds, 3, 1, trial="s-0901", **task))
    assert epochs(heard) == [(3, True)]
    assert 3 < values(heard)[0] - values(source)[-1] < 4, "its sum goes on from its source's"
    heard = trainer.carry_out(segment(functions.never_loads, 3, 1, trial="s-0902", **task))
    assert heard[-1]["kind"] == "checkpoint"
    assert "loops without calling trial.load()" in heard[-1]["message"]


def test_pbt_with_a_function_that_has_no_checkpoint_fails_with_a_clear_word(trainer, trial):
    task = segment(functions.keeps_nothing, 1, 2, trial=trial, final=True, durable=True)
    heard = trainer.carry_out(task)
    assert epochs(heard) == [(1, False)], "the interval's last epoch needs one"
    assert heard[-1]["kind"] == "checkpoint"
    assert "no checkpoint was reported with epoch" in heard[-1]["message"]
