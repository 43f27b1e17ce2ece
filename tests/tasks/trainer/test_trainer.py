"""The real trainer process over its socket pair: what it says to all that can happen in it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE
from penstock.tasks.contracts.code import file_digest
from penstock.wire.messages import SegmentTask
from trainers.trainer_process import TrainerProcess, segment
from user_code import trainees


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One trainer for many trials, as a slot has it."""
    with TrainerProcess(tmp_path_factory.mktemp("trainer") / "log") as trainer:
        yield trainer


@pytest.fixture
def trainer(tmp_path):
    """A trainer of this test's own."""
    with TrainerProcess(tmp_path / "log") as trainer:
        yield trainer


def epochs(heard):
    return [(m["epoch"], m["closes"]) for m in heard if m["op"] == "epoch"]


def test_an_empty_epoch_is_reported_at_once_and_needs_no_code(trainer):
    heard = trainer.carry_out(segment(trainees.objective, 3, 2, contract="empty", fence=9))
    assert epochs(heard) == [(3, False), (4, True)]
    assert heard[0]["memory"] > 0
    assert heard[0] | {"seconds": 0, "memory": 0} == {
        "op": "epoch",
        "trial": "s-0000",
        "fence": 9,
        "epoch": 3,
        "metrics": {"accuracy": 0.0},
        "state_hash": "",
        "signature": "empty",
        "seconds": 0,
        "closes": False,
        "uri": "",
        "memory": 0,
        "joules": None,
    }


def test_a_trainer_ends_when_its_pipe_closes_even_in_the_middle_of_training(tmp_path):
    with TrainerProcess(tmp_path / "log") as trainer:
        trainer.run(segment(trainees.Slow, 1, 9))
        trainer.hear_until("progress")
        assert trainer.close() == -signal.SIGKILL, "it ends its whole group"


def test_a_segment_is_trained_saved_and_resumed_in_another_trainer(shared, tmp_path):
    store = f"file://{tmp_path}/store"
    whole = shared.carry_out(segment(trainees.Small, 1, 4, trial="s-0001", store=store))
    first = shared.carry_out(
        segment(trainees.Small, 1, 2, trial="s-0001", store=store, final=True, fence=2)
    )
    assert epochs(first) == [(1, False), (2, True)]
    durable = shared.hear()
    assert durable["op"] == "durable"
    parent = {name: durable[name] for name in ("epoch", "uri", "state_hash")}
    task = segment(
        trainees.Small,
        3,
        2,
        trial="s-0001",
        store=store,
        expect=first[-1]["state_hash"],
        parents=[parent],
        fence=3,
    )
    with TrainerProcess(tmp_path / "log") as other:
        moved = other.carry_out(task)
    # The first run's checkpoints came from the same bits, so nothing else can be equal.
    assert [m["state_hash"] for m in moved] == [m["state_hash"] for m in whole[2:]]


def test_a_checkpoint_with_a_flipped_bit_is_found_and_the_one_before_is_used(shared, tmp_path):
    store = f"file://{tmp_path}/store"
    fields = {"trial": "s-0002", "store": store}
    whole = shared.carry_out(segment(trainees.Small, 1, 4, **fields))
    parents = []
    for last in (1, 3):
        shared.carry_out(segment(trainees.Small, 1, last, final=True, fence=1 + last, **fields))
        said = shared.hear()
        parents.append({name: said[name] for name in ("epoch", "uri", "state_hash")})
    file = Path(parents[-1]["uri"].removeprefix("file://"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    expect = whole[2]["state_hash"]
    task = segment(trainees.Small, 4, 1, parents=parents, expect=expect, fence=9, **fields)
    log = tmp_path / "log"
    with TrainerProcess(log) as other:
        moved = other.carry_out(task)
    assert moved[-1]["state_hash"] == whole[3]["state_hash"]
    replayed = [m["text"] for m in moved if m["op"] == "progress"]
    assert replayed == ["replaying epoch 2 of 3", "replaying epoch 3 of 3"]
    told = next(m for m in moved if m["op"] == "replayed")
    assert (told["first"], told["last"]) == (2, 3)
    assert "is corrupt: its bytes do not match its name; an older state is used" in told["reason"]


def test_a_trial_whose_trainer_went_before_any_checkpoint_begins_anew_and_says_so(shared, tmp_path):
    fields = {"trial": "s-0093", "store": f"file://{tmp_path}/store"}
    with TrainerProcess(tmp_path / "log") as gone:
        head = gone.carry_out(segment(trainees.Small, 1, 2, **fields))
        state = {"expect": head[-1]["state_hash"], "holder": gone.identity}
    moved = shared.carry_out(segment(trainees.Small, 3, 1, fence=2, **state, **fields))
    told = next(m for m in moved if m["op"] == "replayed")
    assert (told["first"], told["last"]) == (1, 2)
    assert "does not answer" in told["reason"]
    assert told["reason"].endswith("; it begins again")


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (trainees.Raises, "exception", "ValueError: the dog ate the batch"),
        (trainees.GivesNan, "nan", "accuracy is nan after epoch 1"),
        (
            trainees.GivesOtherMetric,
            "metric",
            "'accuracy'; those there are: f1, loss, test_f1, train_loss",
        ),
        (trainees.Exits, "exit", "sys.exit(3)"),
        (trainees.TooBig, "memory", "memory"),
        (trainees.NoData, "data", "/nowhere/train.csv"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_failure_of_the_users_code_has_its_kind_and_the_trainer_goes_on(
    shared, code, kind, words
):
    (failed,) = shared.carry_out(segment(code))
    assert (failed["op"], failed["kind"]) == ("failed", kind)
    assert words in failed["message"]
    assert epochs(shared.carry_out(segment(trainees.Small))) == [(1, True)]


def test_a_traceback_shows_the_users_frames_and_no_others(shared):
    (failed,) = shared.carry_out(segment(trainees.Raises))
    frames = [line for line in failed["traceback"].splitlines() if line.startswith("  File")]
    assert [frame.rpartition(" in ")[2] for frame in frames] == ["loss", "helper"]
    assert failed["traceback"].rstrip().endswith("ValueError: the dog ate the batch")


def test_code_that_is_no_trainable_or_not_there_is_a_failure_of_the_code(shared):
    task = segment(trainees.not_a_trainable, contract="torch")
    (failed,) = shared.carry_out(task)
    assert (failed["kind"], "not a subclass of TorchTrainable" in failed["message"]) == (
        "code",
        True,
    )
    gone = task.code.model_copy(update={"target": "user_code.trainees:Gone"})
    (failed,) = shared.carry_out(task.model_copy(update={"code": gone}))
    assert (failed["kind"], "Gone" in failed["message"]) == ("code", True)


def test_a_node_whose_copy_of_the_code_differs_refuses(shared):
    task = segment(trainees.Small, study="other")
    code = task.code.model_copy(update={"digest": "0" * 64})
    (refused,) = shared.carry_out(task.model_copy(update={"code": code}))
    assert refused["op"] == "refused"
    assert "differs" in refused["reason"]


def test_a_script_whose_import_fails_is_a_failure_of_the_code(shared, tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("import no_such_module_anywhere\n")
    code = {"target": f"{script}:X", "path": str(tmp_path), "digest": file_digest(script)}
    task = segment(trainees.Small, study="broken").model_dump() | {"code": code}
    (failed,) = shared.carry_out(SegmentTask.model_validate(task))
    assert failed["kind"] == "code"
    assert "no_such_module_anywhere" in failed["message"]


def test_a_cut_ends_a_long_segment_at_its_next_epoch(shared):
    shared.run(segment(trainees.Small, 1, 100_000, trial="s-0002"))
    heard = [shared.hear()]
    shared.say(op="cut")
    while not heard[-1].get("closes"):
        heard.append(shared.hear())
    assert heard[-1]["epoch"] < 100_000


def test_a_segment_that_is_fenced_off_stops_in_the_middle_of_its_epoch(shared):
    shared.run(segment(trainees.Slow, 1, 9, trial="s-0003", fence=4))
    shared.hear_until("progress")
    shared.say(op="stop")
    stopped = shared.hear_until("stopped", "epoch")[-1]
    assert (stopped["op"], stopped["fence"]) == ("stopped", 4)


def test_what_is_said_of_one_of_several_open_runs_reaches_no_other(trainer):
    """The second is cut and the third is stopped while the first is at work; a fourth is alone."""
    runs = [
        segment(trainees.Slow, 1, 9, trial="s-0000", fence=1),
        segment(trainees.Small, 1, 9, trial="s-0001", fence=2),
        segment(trainees.Small, 1, 9, trial="s-0002", fence=3),
    ]
    for n, task in enumerate(runs):
        trainer.run(task, queued=n > 0)
    trainer.hear_until("progress")
    trainer.say(op="stop", trial="s-0002", fence=3)
    (*before, stopped) = trainer.hear_until("stopped")
    assert (stopped["trial"], stopped["fence"]) == ("s-0002", 3), "at once, as it never began"
    assert {m["trial"] for m in before} <= {"s-0000"}
    trainer.say(op="cut", trial="s-0001", fence=2)
    trainer.say(op="stop", trial="s-0001", fence=1)  # of no run that is open
    trainer.say(op="stop", trial="s-0000", fence=1)
    heard = trainer.hear_until("stopped")
    assert heard[-1]["trial"] == "s-0000"
    begun, *heard = trainer.hear_until("epoch")
    assert (begun["op"], begun["trial"]) == ("begun", "s-0001")
    assert epochs(heard) == [(1, True)], "it was cut before it began"
    heard = trainer.carry_out(segment(trainees.Small, 1, 1, trial="s-0003", fence=4))
    assert {m["trial"] for m in heard} == {"s-0003"}
    assert "begun" not in {m["op"] for m in heard}, "nobody waits to hear it"


def test_an_answer_reaches_the_run_that_has_asked(trainer):
    trainer.run(segment(trainees.objective, 1, 2, define_by_run=True, fence=1))
    assert trainer.hear_until("suggest")[-1]["name"] == "x"
    trainer.run(segment(trainees.Small, trial="s-0001", fence=2), queued=True)
    trainer.say(op="answer", trial="s-0001", fence=2, value=0.75)
    trainer.say(op="answer", trial="s-0000", fence=1, value=0.5)
    first = trainer.hear_until("begun")
    assert [m["metrics"]["accuracy"] for m in first if m["op"] == "epoch"] == [0.5, 1.0]
    assert first[-1]["trial"] == "s-0001"
    assert epochs(trainer.hear_until("epoch")) == [(1, True)]


def test_a_released_trial_starts_from_nothing_again(shared):
    first = shared.carry_out(segment(trainees.Small, trial="s-0004"))[-1]
    shared.say(op="release", trial="s-0004")
    heard = shared.carry_out(
        segment(trainees.Small, 2, 1, trial="s-0004", expect=first["state_hash"])
    )
    assert [line["op"] for line in heard] == ["replayed", "progress", "epoch"]


def test_a_segmentation_fault_ends_the_process_by_its_signal(trainer):
    trainer.run(segment(trainees.Dies))
    assert {json.loads(line)["op"] for line in trainer.lines} <= {"preparing", "prepared"}
    assert trainer.process.wait(timeout=PATIENCE) == -signal.SIGSEGV
    assert "Segmentation fault" in trainer.log.read_text()


def test_a_trainer_imports_no_part_of_the_control_plane():
    """Celery and the ledger's library never load; torch does not for an empty epoch."""
    code = (
        "import sys, penstock.tasks.trainer.__main__ as t, penstock.tasks.contracts.code; "
        "bad = {'celery', 'kombu', 'redis', 'sqlalchemy', 'optuna', 'torch'} & set(sys.modules); "
        "import penstock.tasks.trainer.segment; "
        "bad |= {'celery', 'kombu', 'redis', 'sqlalchemy', 'optuna'} & set(sys.modules); "
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
