"""A frozen encoder computes each example once, and nothing depends on where that is kept."""

from __future__ import annotations

import ctypes
import os
import signal

import pytest
import torch
from penstock import Data
from penstock.base.errors import TrialFailed
from penstock.extensions.sharing.activations import Activations, ComputedAgain
from penstock.extensions.sharing.blocks import BLOCK
from penstock.extensions.sharing.frozen_encoder import FrozenEncoder
from penstock.extensions.sharing.kept_files import KeptFiles
from penstock.extensions.sharing.trainer import Sharing
from penstock.tasks.process.pipe import Run
from penstock.tasks.trainer.hooks import Hooks
from penstock.tasks.trainer.made_once import TrackedParams
from penstock.tasks.trainer.shared_data import SharedData
from penstock.tasks.training import loop
from torch import nn
from torch.utils.data import TensorDataset
from trainers.trainer_here import Trainer
from trainers.trainer_process import ENDLESS, alone_hashes, as_far, hashes, segment, train_until
from user_code import encoded_code
from user_code.encoded_code import COMPUTED, Net, OnActivations, OneByOne, Wider, plain

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    COMPUTED.clear()


def everything(held):
    return 1 << 30


def nothing(held):
    return 0


def shared(folder=None, capacity=everything, budget=everything):
    files = None if folder is None else KeptFiles(folder, budget)
    return SharedData(Hooks([Sharing(Activations(capacity, files), None, None)]))


def trial(data, code=OnActivations, number=0, shards=1, **params):
    reads = TrackedParams(params)
    made = code(reads)
    return loop.start(made, data.of(made, reads), 7, number, shards, device=CPU)


def trained(data, code=OnActivations, epochs=2, **others):
    run = trial(data, code, **others)
    metrics = [loop.run_epoch(run, lambda *_: None).metrics for _ in range(epochs)]
    return metrics, run.hash()


def test_loss_sees_the_activations_of_an_example_and_its_label():
    run = trial(shared())
    x, y = run.data.train.tensors
    plain_x, plain_y = OnActivations({}).data().train.dataset[:150]
    with torch.no_grad():
        blocks = [Net()(part) for part in plain_x.split(BLOCK)]
    assert torch.equal(x, torch.cat(blocks))
    assert torch.equal(y, plain_y)


def test_all_trials_have_what_was_computed_once_for_each_example():
    data = shared()
    runs = [trial(data, number=n) for n in range(4)]
    assert sum(COMPUTED) == 150 + 30 + 20
    assert len({id(run.data.train) for run in runs}) == 1


def test_wherever_it_is_kept_a_trial_has_the_same_bits(tmp_path):
    in_memory = shared()
    in_file = shared(tmp_path, nothing)
    nowhere = shared(tmp_path / "none", nothing, nothing)
    assert type(trial(in_memory).data.train) is TensorDataset
    assert type(trial(in_file).data.train) is TensorDataset
    assert len(list(tmp_path.glob("*.activations"))) == 3
    again = trial(nowhere).data.train
    assert type(again) is ComputedAgain
    expected = trained(in_memory)
    assert trained(in_file) == expected
    assert trained(nowhere) == expected


def test_examples_that_are_read_one_by_one_have_the_same_bits_too(tmp_path):
    expected = trained(shared(), OneByOne)
    assert trained(shared(tmp_path, nothing), OneByOne) == expected
    assert trained(shared(None, nothing), OneByOne) == expected
    assert expected[1] == trained(shared())[1], "the last trial read tensors"


def test_whatever_the_trial_has_an_encoder_computes_at_one_thread(monkeypatch):
    threads, forward = set(), Net.forward

    def noted(self, x):
        threads.add(torch.get_num_threads())
        return forward(self, x)

    monkeypatch.setattr(Net, "forward", noted)
    torch.set_num_threads(2)
    run = trial(shared(), shards=2)
    assert torch.get_num_threads() == 2
    assert threads == {1}
    torch.set_num_threads(1)
    alone = trial(shared())
    assert torch.equal(run.data.train.tensors[0], alone.data.train.tensors[0])


def test_a_row_computed_again_is_the_one_of_its_block():
    encoder = FrozenEncoder(Net(), CPU)
    data = plain(BLOCK * 3 + 5)
    whole = Activations(everything, None).of(data, encoder).tensors[0]
    again = Activations(nothing, None).of(data, encoder)
    indices = torch.randperm(len(data), generator=torch.Generator().manual_seed(1))[:40]
    assert torch.equal(again.rows(indices)[0], whole[indices])
    assert torch.equal(again[BLOCK * 3 + 4][0], whole[-1])


def test_blocks_that_are_held_are_not_computed_again():
    encoder, data = FrozenEncoder(Net(), CPU), plain(BLOCK * 4)
    row = 6 * 4
    again = Activations(lambda held: 2 * BLOCK * row, None).of(data, encoder)
    COMPUTED.clear()
    for i in (0, 1, 0, 1, 2, 1, 0):
        again[BLOCK * i]
    assert len(COMPUTED) == 4, "0, 1, 2, and 0 once more"


@pytest.mark.parametrize(
    ("code", "kind", "why"),
    [
        ("Training", "inexact", r"layer layers\.3 \(Dropout\) is in training mode"),
        ("InsideTraining", "inexact", r"layer 0 \(Net\) is in training mode"),
        ("Learning", "inexact", r"layers\.4\.bias requires a gradient"),
        ("BatchStatistics", "inexact", r"layers\.1 \(BatchNorm1d\) has the statistics of each"),
        ("Drawing", "inexact", "draws random numbers even in evaluation"),
        ("Counting", "inexact", "changes its own tensors"),
        ("Augmented", "inexact", "data draw random numbers as they are read"),
        ("AugmentedSecretly", "inexact", "another one each time it is read"),
        ("NoModule", "data", "torch module or None, not str"),
        ("OneForAll", "data", "row for each of 64"),
        ("Words", "data", "examples of tensors, not of"),
    ],
)
def test_what_cannot_be_computed_once_is_refused_by_name(code, kind, why):
    with pytest.raises(TrialFailed, match=why) as refused:
        trial(shared(), getattr(encoded_code, code))
    assert refused.value.kind == kind


def test_trials_whose_encoders_have_other_weights_have_other_activations():
    data = shared()
    runs = [trial(data, Wider, seed=seed) for seed in (1, 2, 1)]
    first, second, third = (run.data.train for run in runs)
    assert first is third
    assert not torch.equal(first.tensors[0], second.tensors[0])


def test_equal_encoders_of_different_parameters_share_activations():
    class Alike(OnActivations):
        def encoder(self):
            return Net(self.params["seed"] % 2)

    data = shared()
    first, second = (trial(data, Alike, seed=seed) for seed in (1, 3))
    assert first.data.train is second.data.train


def test_memory_is_for_what_was_used_last_and_what_trials_have_is_found_again():
    one = 200 * (6 * 4 + 8)  # the activations and labels of all three sets
    data = shared(capacity=lambda held: one)
    first = trial(data, Wider, seed=1).data.train
    kept = trial(data, Wider, seed=2)
    assert type(first) is TensorDataset
    assert type(kept.data.train) is ComputedAgain, "a trial has the others"
    del first
    again = trial(data, Wider, seed=3).data.train
    assert type(again) is TensorDataset


def test_a_study_that_is_over_leaves_nothing_in_memory():
    activations = Activations(everything, None)
    encoder, data = FrozenEncoder(Net(), CPU), plain(100)
    activations.of(data, encoder)
    assert activations.bytes() == 100 * 6 * 4
    activations.release()
    assert activations.bytes() == 0


# -- trainers --


def epochs(heard):
    return [m for m in heard if m["op"] == "epoch"]


@pytest.mark.extension("fusion", "lanes")
def test_trials_in_seats_are_trained_together_on_activations(alone, lane):
    tasks = [
        segment(
            OnActivations, 1, ENDLESS, trial=f"s-{n:04}", fence=n + 1, seed=n, ext={"fusion": {}}
        )
        for n in range(4)
    ]
    heard = train_until(lane, tasks, lambda heard: any(m["together"] > 1 for m in epochs(heard)))
    assert hashes(heard) == alone_hashes(alone, as_far(tasks, heard))
    assert not [m for m in heard if m["op"] == "remarked"]


@pytest.mark.extension("fusion")
def test_why_trials_are_not_trained_together_is_said():
    from penstock.extensions.fusion.fusion import Fusion

    run = trial(shared(None, nothing))
    assert "fit neither into memory nor on the disk" in Fusion().refusal(run)


def test_a_trainer_keeps_files_where_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.tasks.trainer.segment.warm_capacity", nothing)
    plain_trainer, kept = Trainer(), Trainer(kept=tmp_path)
    first, second = plain_trainer.train(OnActivations), kept.train(OnActivations)
    assert [m["state_hash"] for m in first] == [m["state_hash"] for m in second]
    assert len(list(tmp_path.glob("*.activations"))) == 3


def test_with_a_limit_of_the_process_activations_are_not_in_memory(tmp_path):
    trainer = Trainer(kept=tmp_path)
    trainer.train(OnActivations, memory_limit=1 << 40)
    assert len(list(tmp_path.glob("*.activations"))) == 3


class Wide(OnActivations):
    """Activations of 12 MB, made from 8 kB."""

    def data(self):
        return Data(plain(3000), plain(64))

    def encoder(self):
        return nn.Linear(4, 1000).eval().requires_grad_(requires_grad=False)

    def model(self):
        return nn.Linear(1000, 2)

    def loss(self, model, batch):
        return model(batch[0]).square().mean()

    def metrics(self, model, batch):
        return {"accuracy": 0.5}


@pytest.mark.extension("memory")
def test_an_estimate_computes_one_block_and_counts_no_activations(monkeypatch):
    """Neither is in what a trial needs: they are the process's, as its data are."""
    trainer = Trainer()
    trainer.segments.hook["memory"].estimator.trained(1e6)
    first = trainer.train(OnActivations)
    monkeypatch.setattr("penstock.extensions.sharing.activations.Activations.of", None)
    task = segment(Wide)
    found = trainer.segments.hook["memory"].estimator.estimate(
        lambda: trainer.segments._resumption.initial(task, Wide, CPU)
    )
    assert first
    assert found["failed"] == ""
    assert 4 * 2002 <= found["persistent"] < 5 * 4 * 2002
    assert found["ephemeral"] < 20 * 4 * 1000 * Wide.batch_size, "a batch of activations, or some"


def test_activations_belong_to_the_process_that_a_trial_begins_in():
    trainer = Trainer()
    task = segment(Wide)
    run = Run(task, trainer, metering=trainer.metering)
    # What the tests before have freed would be taken first.
    ctypes.CDLL(None).malloc_trim(0)
    run.memory.begin()
    before = run.memory.base
    trainer.segments.run(run, Wide)
    assert run.memory.base - before > 12_000_000


# -- files ---------------------------------------------------------------------------------------


def in_file(folder, data, encoder, budget=everything):
    return Activations(nothing, KeptFiles(folder, budget)).of(data, encoder)


def test_another_trainer_reads_the_file_and_computes_two_blocks(tmp_path):
    data = plain(BLOCK * 5)
    made = in_file(tmp_path, data, FrozenEncoder(Net(), CPU))
    COMPUTED.clear()
    found = in_file(tmp_path, data, FrozenEncoder(Net(), CPU))
    assert len(COMPUTED) == 2, "the first, for its shape, and one that is compared"
    assert torch.equal(made.tensors[0], found.tensors[0])


def test_a_file_of_code_that_has_changed_is_not_used(tmp_path, monkeypatch):
    data = plain(BLOCK * 2)
    in_file(tmp_path, data, FrozenEncoder(Net(), CPU))
    forward = Net.forward
    monkeypatch.setattr(Net, "forward", lambda self, x: forward(self, x) + 1)
    expected = Activations(everything, None).of(data, FrozenEncoder(Net(), CPU)).tensors[0]
    found = in_file(tmp_path, data, FrozenEncoder(Net(), CPU))
    assert torch.equal(found.tensors[0], expected)


@pytest.mark.parametrize("damage", ["cut", "bit", "header", "empty"])
def test_a_damaged_file_is_not_used(tmp_path, damage):
    data = plain(BLOCK * 2)
    expected = in_file(tmp_path, data, FrozenEncoder(Net(), CPU)).tensors[0].clone()
    [path] = tmp_path.glob("*.activations")
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[-9] ^= 1
    elif damage == "header":
        content[:10] = b"x" * 10
    else:
        del content[0 if damage == "empty" else -100 :]
    path.write_bytes(content)
    COMPUTED.clear()
    found = in_file(tmp_path, data, FrozenEncoder(Net(), CPU))
    assert torch.equal(found.tensors[0], expected)
    assert len(COMPUTED) == 3, "all of it anew"


def test_files_go_when_there_are_too_many_and_who_reads_one_still_has_it(tmp_path):
    size = 4096 + BLOCK * 6 * 4
    encoder = FrozenEncoder(Net(), CPU)
    made, expected = [], []
    for n in range(3):
        data = TensorDataset(torch.randn(BLOCK, 4, generator=torch.Generator().manual_seed(n)))
        expected.append(Activations(everything, None).of(data, encoder).tensors[0])
        made.append(in_file(tmp_path, data, encoder, lambda held: 2 * size))
        for path in tmp_path.iterdir():
            status = path.stat()
            os.utime(path, (status.st_atime - 10, status.st_mtime - 10))
    assert len(list(tmp_path.iterdir())) == 2
    assert all(torch.equal(m.tensors[0], e) for m, e in zip(made, expected, strict=True))


def test_a_folder_that_takes_nothing_changes_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    data, encoder = plain(BLOCK * 2), FrozenEncoder(Net(), CPU)
    assert type(in_file(tmp_path / "file", data, encoder)) is ComputedAgain


def test_a_writer_that_is_killed_leaves_nothing_that_is_read(tmp_path):
    extents = [(torch.float32, (BLOCK * 3, 2))]
    blocks = [(torch.full((BLOCK, 2), float(i)),) for i in range(3)]
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:

        def some():
            yield blocks[0]
            yield blocks[1]
            os.write(writing, b"x")
            signal.pause()

        KeptFiles(tmp_path, everything).write("a", extents, some())
        os._exit(0)
    os.read(reading, 1)
    [draft] = tmp_path.iterdir()
    files = KeptFiles(tmp_path, everything)
    assert files.find("a") is None
    files.write("b", extents, blocks)
    assert draft.exists(), "its writer is at work"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert files.find("a") is None
    [made] = files.write("a", extents, blocks)
    assert torch.equal(made, torch.cat([block for [block] in blocks]))
    assert not draft.exists()
    assert torch.equal(files.find("a")[0], made)


def test_what_the_blocks_raise_leaves_no_draft(tmp_path):
    def failing():
        yield (torch.zeros(BLOCK, 2),)
        raise KeyError

    with pytest.raises(KeyError):
        KeptFiles(tmp_path, everything).write("a", [(torch.float32, (BLOCK * 2, 2))], failing())
    assert list(tmp_path.iterdir()) == []
