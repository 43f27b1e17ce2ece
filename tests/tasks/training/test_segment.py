"""The same (trial, epoch) has the same bits, whichever way its state came about."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from patience import PATIENCE
from penstock.base.errors import TrialFailed
from penstock.tasks.checkpoints import checkpoint
from penstock.tasks.process.failure import Lost
from penstock.tasks.process.pipe import Run
from penstock.tasks.training import loop
from trainers.trainer_here import Trainer
from trainers.trainer_process import segment
from user_code import trainees

ADAM = {"optimizer": "adam", "schedule": "steps", "batch_size": 17}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Kernels of two threads wait for each other on a busy machine, milliseconds each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture
def trainer():
    return Trainer()


def hashes(epochs):
    return [epoch["state_hash"] for epoch in epochs]


@pytest.fixture(
    scope="module", params=[{}, ADAM, {"schedule": "plateau"}], ids=["sgd", "adam", "plateau"]
)
def params(request):
    return request.param


@pytest.fixture(scope="module")
def alone(params, one_thread):
    """Epochs 1 to 5 of trial 0, in one go in a trainer of their own."""
    return Trainer().train(trainees.Small, 1, 5, params=params)


def test_every_epoch_changes_the_state_and_is_reported_once(alone):
    assert [epoch["epoch"] for epoch in alone] == [1, 2, 3, 4, 5]
    assert [epoch["closes"] for epoch in alone] == [False] * 4 + [True]
    assert len(set(hashes(alone))) == 5


def test_segments_of_a_warm_trial_give_the_same_bits_and_metrics(trainer, params, alone):
    epochs = trainer.train(trainees.Small, 1, 2, params=params)
    epochs += trainer.train(trainees.Small, 3, 3, params=params, expect=epochs[-1]["state_hash"])
    assert hashes(epochs) == hashes(alone)
    assert [e["metrics"] for e in epochs] == [e["metrics"] for e in alone]


def test_a_segment_closes_with_the_epoch_that_ends_after_its_moment(trainer, params, alone):
    [first] = trainer.train(trainees.Small, 1, 5, params=params, until=time.time() - 1.0)
    assert first["closes"], "it had come too late, and trained what it was sent for"
    rest = trainer.train(
        trainees.Small,
        2,
        4,
        params=params,
        expect=first["state_hash"],
        until=time.time() + PATIENCE,
    )
    assert [epoch["closes"] for epoch in rest] == [False] * 3 + [True]
    assert hashes([first, *rest]) == hashes(alone)


def test_other_trials_in_between_change_nothing(trainer, params, alone):
    epochs, expect = [], ""
    for first in range(1, 6):
        trainer.train(trainees.OneByOne, 1, 1, trial=f"s-000{first}", params={"lr": 0.1 / first})
        epochs += trainer.train(trainees.Small, first, 1, params=params, expect=expect)
        expect = epochs[-1]["state_hash"]
    assert hashes(epochs) == hashes(alone)


def test_a_trial_that_is_replayed_from_nothing_reports_only_new_epochs(trainer, params, alone):
    epochs = trainer.train(trainees.Small, 4, 2, params=params, expect=alone[2]["state_hash"])
    assert hashes(epochs) == hashes(alone)[3:]
    assert trainer.replays() == [f"replaying epoch {n} of 3" for n in (1, 2, 3)]


def parent_after(epoch, params, tmp_path):
    """A durable state as its trainer said it, in the form that a task carries."""
    source = Trainer()
    store = f"file://{tmp_path}"
    source.train(trainees.Small, 1, epoch, params=params, final=True, store=store)
    said = source.durable.get(timeout=PATIENCE)
    return {name: said[name] for name in ("epoch", "uri", "state_hash")}


def test_a_trial_moves_to_another_trainer_by_its_checkpoint(trainer, params, alone, tmp_path):
    parent = parent_after(3, params, tmp_path)
    epochs = trainer.train(
        trainees.Small, 4, 2, params=params, expect=alone[2]["state_hash"], parents=[parent]
    )
    assert hashes(epochs) == hashes(alone)[3:]
    assert trainer.replays() == []


def test_a_checkpoint_that_is_corrupt_gives_way_to_an_older_one(trainer, params, alone, tmp_path):
    older, newer = (parent_after(n, params, tmp_path) for n in (1, 3))
    with Path(newer["uri"].removeprefix("file://")).open("r+b") as file:
        file.seek(100)
        file.write(b"rust")
    epochs = trainer.train(
        trainees.Small, 4, 1, params=params, expect=alone[2]["state_hash"], parents=[newer, older]
    )
    assert hashes(epochs) == hashes(alone)[3:4]
    assert trainer.replays() == ["replaying epoch 2 of 3", "replaying epoch 3 of 3"]


def test_a_warm_trial_ahead_of_what_was_accepted_goes_back(trainer, params, alone):
    trainer.train(trainees.Small, 1, 5, params=params)
    epochs = trainer.train(trainees.Small, 3, 1, params=params, expect=alone[1]["state_hash"])
    assert hashes(epochs) == hashes(alone)[2:3]


def test_a_warm_trial_behind_what_was_accepted_elsewhere_catches_up(trainer, params, alone):
    trainer.train(trainees.Small, 1, 2, params=params)
    epochs = trainer.train(trainees.Small, 5, 1, params=params, expect=alone[3]["state_hash"])
    assert hashes(epochs) == hashes(alone)[4:]
    assert trainer.replays() == ["replaying epoch 3 of 4", "replaying epoch 4 of 4"]


def test_trials_of_different_number_or_seed_differ(trainer, alone):
    by_number = trainer.train(trainees.Small, trial="s-0001")
    by_seed = trainer.train(trainees.Small, seed=8)
    assert len({alone[0]["state_hash"], *hashes(by_number), *hashes(by_seed)}) == 3


def test_training_that_draws_unkeyed_numbers_diverges_on_replay_and_both_hashes_are_named(trainer):
    first = trainer.train(trainees.Careless)[0]["state_hash"]
    with pytest.raises(TrialFailed, match=f"came out as .*, not as {first}") as failure:
        Trainer().train(trainees.Careless, 2, 1, expect=first)
    assert failure.value.kind == "diverged"


def test_validation_and_test_metrics_are_means_over_the_whole_set(trainer):
    metrics = trainer.train(trainees.Small)[0]["metrics"]
    assert set(metrics) == {"train_loss", "loss", "accuracy", "test_accuracy"}
    assert metrics["accuracy"] * 10 == pytest.approx(round(metrics["accuracy"] * 10))
    assert metrics["test_accuracy"] * 6 == pytest.approx(round(metrics["test_accuracy"] * 6))


def test_a_cut_closes_the_segment_at_the_end_of_the_epoch(trainer):
    run = Run(segment(trainees.Small, 1, 50), trainer)
    run.cut = True
    trainer.segments.run(run, trainees.Small)
    epochs = [m for m in trainer.said if m["op"] == "epoch"]
    assert [(m["epoch"], m["closes"]) for m in epochs] == [(1, True)]


def test_a_store_that_cannot_be_reached_costs_checkpoints_and_no_training(trainer, tmp_path):
    (tmp_path / "file").touch()
    trainer.train(trainees.Small, store=f"file://{tmp_path}/file/store")
    assert [m["op"] for m in trainer.said] == ["epoch"]


def fork(params, tmp_path, epoch=2, **source):
    """The state of trial 0 after ``epoch``, as a task carries it that goes on from there."""
    return {
        "trial": "s-0004",
        "params": params,
        "origin": epoch,
        "parents": [parent_after(epoch, source or params, tmp_path)],
    }


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("schedule", ["cosine", "steps", "plateau"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_forked_trial_has_the_bits_of_the_sources_epochs_and_then_its_own_parameters(
    trainer, tmp_path, optimizer, schedule
):
    """By hand: the source's weights and moments, the heir's rate, batches, order and schedule."""
    source = {"optimizer": optimizer, "schedule": schedule, "lr": 0.05, "batch_size": 20}
    heir = source | {"lr": 0.02, "batch_size": 16}
    task = fork(heir, tmp_path, **source)
    epochs = trainer.train(trainees.Small, 3, 3, **task)

    def start(params, number):
        code = trainees.Small(params)
        return loop.start(code, code.data(), 7, number)

    first, direct = start(source, 0), start(heir, 4)
    for _ in range(2):
        loop.run_epoch(first, lambda *_: None)
    direct.model.load_state_dict(first.model.state_dict())
    direct.optimizer.state.update(
        {
            own: {
                name: value.clone() if hasattr(value, "clone") else value
                for name, value in there.items()
            }
            for own, there in zip(
                direct.model.parameters(), first.optimizer.state.values(), strict=True
            )
        }
    )
    if schedule == "plateau":
        direct.schedule.best = first.schedule.best
        direct.schedule.num_bad_epochs = first.schedule.num_bad_epochs
        direct.schedule.last_epoch = 2
    else:
        direct.schedule.step()
        direct.schedule.step()
    direct.epoch = 2
    expected = []
    for _ in range(3):
        loop.run_epoch(direct, lambda *_: None)
        expected.append(direct.hash())
    assert hashes(epochs) == expected
    assert [epoch["epoch"] for epoch in epochs] == [3, 4, 5]

    # Elsewhere it is replayed, from the same file, to the same bits.
    again = Trainer().train(trainees.Small, 5, 1, **task, expect=epochs[1]["state_hash"])
    assert hashes(again) == expected[2:]


def test_a_forked_trial_whose_source_cannot_be_read_is_never_trained_from_nothing(
    trainer, tmp_path
):
    task = fork({}, tmp_path)
    Path(task["parents"][0]["uri"].removeprefix("file://")).unlink()
    with pytest.raises(Lost, match=r"state after epoch 2 is neither in the store.*cannot be read"):
        trainer.train(trainees.Small, 3, 1, **task)
    with pytest.raises(Lost):
        trainer.train(trainees.Small, 5, 1, **task, expect="its own epoch 4")


def test_a_source_of_another_shape_is_refused_with_what_to_do(trainer, tmp_path):
    with pytest.raises(TrialFailed, match=r"PBT\(explore=\[...\]\)") as failure:
        trainer.train(trainees.Small, 3, 1, **fork({"width": 9}, tmp_path, width=8))
    assert failure.value.kind == "fork"


def test_an_epoch_that_others_may_go_on_from_is_in_the_store_before_it_counts(trainer, tmp_path):
    epochs = trainer.train(
        trainees.Small, 1, 2, final=True, durable=True, store=f"file://{tmp_path}"
    )
    assert epochs[0]["uri"] == ""
    assert checkpoint.load(epochs[1]["uri"], epochs[1]["state_hash"])
    assert trainer.durable.empty(), "it is not written twice"


def test_a_segment_that_is_not_the_last_is_saved_only_when_due(trainer, monkeypatch):
    first = trainer.train(trainees.Small)
    assert trainer.durable.empty()
    monkeypatch.setattr(checkpoint.Writer, "due", lambda self, trial, mtbf: True)
    trainer.train(trainees.Small, 2, 1, expect=first[0]["state_hash"])
    assert trainer.durable.get(timeout=PATIENCE)["epoch"] == 2


def test_the_signature_names_what_the_bits_depend_on(alone, params):
    batch = params.get("batch_size", 20)
    assert alone[0]["signature"].startswith(f"S1;batch{batch};threads")
    assert "float32" in alone[0]["signature"]


def test_a_trial_in_shards_is_replayed_and_moved_to_the_same_bits(trainer, tmp_path):
    alone = Trainer().train(trainees.OneByOne, 1, 4, shards=3)
    assert alone[0]["signature"].startswith("S3;")
    replayed = trainer.train(trainees.OneByOne, 3, 2, shards=3, expect=alone[1]["state_hash"])
    assert hashes(replayed) == hashes(alone)[2:]
    assert [e["metrics"] for e in replayed] == [e["metrics"] for e in alone[2:]]


def test_the_shards_of_a_trial_are_part_of_what_it_learns(trainer):
    assert hashes(trainer.train(trainees.Small, shards=2)) != hashes(trainer.train(trainees.Small))
