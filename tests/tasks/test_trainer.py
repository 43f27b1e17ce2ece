"""The real trainer process over its socket pair: what it says to all that can happen in it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import trainees
from penstock.tasks.load import file_digest
from penstock.tasks.messages import SegmentTask
from trainer_process import PATIENCE, TrainerProcess, segment


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
    assert heard[0] | {"seconds": 0} == {
        "op": "epoch",
        "trial": "s-0000",
        "fence": 9,
        "epoch": 3,
        "metrics": {"accuracy": 0.0},
        "state_hash": "",
        "signature": "empty",
        "seconds": 0,
        "closes": False,
    }


def test_a_trainer_ends_when_its_pipe_closes_even_in_the_middle_of_training(tmp_path):
    with TrainerProcess(tmp_path / "log") as trainer:
        trainer.run(segment(trainees.Slow, 1, 9))
        trainer.hear_until("progress")
        assert trainer.close() == 0


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
    gone = task.code.model_copy(update={"target": "trainees:Gone"})
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


def test_a_released_trial_starts_from_nothing_again(shared):
    first = shared.carry_out(segment(trainees.Small, trial="s-0004"))[-1]
    shared.say(op="release", trial="s-0004")
    heard = shared.carry_out(
        segment(trainees.Small, 2, 1, trial="s-0004", expect=first["state_hash"])
    )
    assert heard[0]["text"] == "replaying epoch 1 of 1"


def test_a_segmentation_fault_ends_the_process_by_its_signal(trainer):
    trainer.run(segment(trainees.Dies))
    assert trainer.lines.readline() == b""
    assert trainer.process.wait(timeout=PATIENCE) == -signal.SIGSEGV
    assert "Segmentation fault" in trainer.log.read_text()


def answer(trainer, name, value):
    """Hear one question and answer it; gives the question."""
    question = trainer.hear()
    assert (question["op"], question["name"]) == ("suggest", name)
    trainer.say(op="suggested", name=name, value=value)
    return question


def test_an_objective_pauses_in_report_and_goes_on_in_place(trainer):
    trainer.run(segment(trainees.objective, 1, 2, define_by_run=True))
    question = answer(trainer, "x", 0.5)
    assert '"FloatDistribution"' in question["distribution"]
    assert epochs([trainer.hear(), trainer.hear()]) == [(1, False), (2, True)]
    trainer.run(segment(trainees.objective, 3, 3, define_by_run=True, params={"x": 0.5}, fence=2))
    third = trainer.hear()
    assert third["metrics"] == {"accuracy": 1.5, "step": 2.0}
    assert third["fence"] == 2
    answer(trainer, "kind", "b")
    assert epochs([trainer.hear(), trainer.hear()]) == [(4, False), (5, True)]
    params = {"x": 0.5, "kind": "b"}
    heard = trainer.carry_out(segment(trainees.objective, 6, 9, params=params, fence=3))
    assert epochs(heard) == [(6, False)]
    assert heard[-1] == {"op": "returned", "trial": "s-0000", "fence": 3, "value": 50.0}


def test_an_objective_in_another_trainer_starts_over_and_repeats_no_report(trainer):
    params = {"x": 0.5, "kind": "a"}
    heard = trainer.carry_out(segment(trainees.objective, 4, 2, params=params))
    assert [m["text"] for m in heard[:3]] == [f"replaying epoch {n} of 3" for n in (1, 2, 3)]
    assert epochs(heard) == [(4, False), (5, True)]
    # A fenced-off attempt was ahead: what was not accepted is sent again from memory.
    again = trainer.carry_out(segment(trainees.objective, 4, 1, params=params, fence=2))
    assert again[0]["metrics"] == heard[3]["metrics"]
    assert epochs(again) == [(4, True)]
    # Released, the paused objective is unwound; the trial could start over.
    trainer.say(op="release", trial="s-0000")
    assert epochs(trainer.carry_out(segment(trainees.objective, 1, 1, params=params))) == [
        (1, True)
    ]
    # Fenced off while it waits for the sampler.
    trainer.run(segment(trainees.objective, trial="s-0001", define_by_run=True, fence=5))
    assert trainer.hear()["op"] == "suggest"
    trainer.say(op="stop")
    assert trainer.hear() == {"op": "stopped", "trial": "s-0001", "fence": 5}


def test_how_an_objective_ends_is_said_as_optuna_would(trainer):
    pruned = trainer.carry_out(segment(trainees.objective_prunes, 1, 5))
    assert (pruned[-1]["op"], pruned[-1]["value"]) == ("returned", 0.25)
    for code, kind, words in [
        (trainees.objective_returns_text, "exception", "must return one number, not 'good'"),
        (trainees.objective_reports_nan, "nan", "reported at step 0 is nan"),
        (trainees.objective_exits, "exit", "sys.exit('enough')"),
        (trainees.objective_raises, "exception", "KeyError: 'missing'"),
        (trainees.objective, "exception", "asks for 'x', the study's space has nothing"),
    ]:
        (failed,) = trainer.carry_out(segment(code))
        assert (failed["op"], failed["kind"]) == ("failed", kind)
        assert words in failed["message"]


def test_a_trainer_imports_no_part_of_the_control_plane():
    """Celery and the ledger's library never load; torch does not for an empty epoch."""
    code = (
        "import sys, penstock.tasks.trainer as t, penstock.tasks.load; "
        "bad = {'celery', 'kombu', 'redis', 'sqlalchemy', 'optuna', 'torch'} & set(sys.modules); "
        "import penstock.tasks.segment; "
        "bad |= {'celery', 'kombu', 'redis', 'sqlalchemy', 'optuna'} & set(sys.modules); "
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
