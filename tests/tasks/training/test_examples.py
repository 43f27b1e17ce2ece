"""The examples' training code, run at reduced size by the trainer's own loop."""

from __future__ import annotations

import gzip
import importlib
import os
import runpy
import urllib.request
from pathlib import Path

import numpy as np
import optuna
import pytest
from penstock.base.errors import UsageError
from penstock.tasks.trainer.hooks import Hooks, Parts, hooks_of
from penstock.tasks.trainer.made_once import TrackedParams
from penstock.tasks.trainer.shared_data import SharedData
from penstock.tasks.training.determinism import configure
from penstock.tasks.training.loop import run_epoch, start

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = ("train-images", "train-labels", "t10k-images", "t10k-labels")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    configure()


def example(name):
    """The names of an example, imported as a trainer does: its study part does not run."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


def train(trainable, epochs, shared=None, **params):
    return history(trainable, epochs, shared, **params)[-1]


def history(trainable, epochs, shared=None, **params):
    reads = TrackedParams(params)
    code = trainable(reads)
    data = (shared or SharedData()).of(code, reads)
    training = start(code, data, seed=0, number=0)
    return [run_epoch(training, lambda *_: None).metrics for _ in range(epochs)]


def test_a_good_configuration_of_digits_reads_unseen_digits():
    net = example("digits")["DigitsNet"]
    last = train(net, 9, lr=3e-3, hidden=128, dropout=0.1, batch_size=32)
    assert last["test_accuracy"] > 0.95


def test_lenet_learns_from_a_part_of_mnist(monkeypatch):
    data = os.environ.get("PENSTOCK_DATA")
    if data is None or not (Path(data) / "mnist" / f"{NAMES[0]}-idx3-ubyte.gz").exists():
        pytest.skip("MNIST is not here: set PENSTOCK_DATA to a folder with mnist/*-ubyte.gz")
    net = example("mnist_lenet")["LeNet"]
    last = train(net, 1, lr=0.05, momentum=0.9, batch_size=32, examples=3000)
    assert last["test_accuracy"] > 0.7
    assert last["accuracy"] * 300 == pytest.approx(round(last["accuracy"] * 300))


def test_an_idx_file_is_parsed_and_a_wrong_one_refused(monkeypatch, tmp_path):
    names = example("mnist_lenet")
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    header = bytes([0, 0, 8, 3]) + np.array(images.shape, ">i4").tobytes()
    np.testing.assert_array_equal(names["parse"](header + images.tobytes()), images)
    with pytest.raises(UsageError, match="no IDX file"):
        names["parse"](b"\x00\x01" + header[2:])
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    file = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    file.write_bytes(gzip.compress(header + images.tobytes()))
    with pytest.raises(UsageError, match="is not MNIST's"):
        names["read"]("train-images-idx3-ubyte")


def test_without_data_and_network_mnist_says_what_to_do(monkeypatch, tmp_path):
    names = example("mnist_lenet")
    monkeypatch.delenv("PENSTOCK_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def offline(url, timeout):
        raise OSError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    with pytest.raises(UsageError, match=r"no route to host.*put MNIST's four \.gz files in"):
        names["read"]("train-images-idx3-ubyte")
    assert not list(tmp_path.rglob("*.*"))


def test_the_optuna_example_runs_with_plain_optuna(monkeypatch):
    objective = example("optuna_objective")["objective"]
    assert "penstock" not in objective.__globals__
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=2)
    assert study.best_value > 0.85
    assert len(study.best_trial.intermediate_values) == 9


@pytest.fixture
def encoded():
    """Return shared data of a trainer with the extension that frozen encoders need."""
    parts = Parts(kept=None, capacity=lambda held: 1 << 30, handler=None)
    return SharedData(Hooks([*hooks_of(["sharing"], parts).values()]))


@pytest.fixture
def with_data(monkeypatch):
    """Imports an example, whose data have to be here, as a module."""

    def load(file, name):
        data = os.environ.get("PENSTOCK_DATA")
        if data is None or not (Path(data) / file).exists():
            pytest.skip(f"data of {name} is not here: set PENSTOCK_DATA to a folder with {file}")
        monkeypatch.syspath_prepend(EXAMPLES)
        return importlib.import_module(name)

    return load


def test_a_mnasnet_like_net_learns_from_a_part_of_cifar10_and_its_size_is_known(with_data):
    module = with_data("cifar10/test_batch.bin.gz", "nas_cifar10")
    chosen = {"width0": 16, "width1": 24, "width2": 48, "lr": 3e-3}
    for stage, op in enumerate(("plain", "separable", "inverted")):
        chosen |= {f"kernel{stage}": 3, f"depth{stage}": 2, f"op{stage}": op}
    assert set(chosen) == set(module.space())
    first, last = history(module.Cifar, 2, **chosen, examples=640)
    assert last["train_loss"] < first["train_loss"]
    made = module.Cifar(chosen)
    assert 5e5 < made.fixed_metrics(made.model())["flops"] < module.MOST_FLOPS


@pytest.mark.extension("sharing")
def test_adapters_tell_classes_apart_that_the_frozen_network_has_not_seen(with_data, encoded):
    module = with_data("cifar10/test_batch.bin.gz", "nas_adapters")
    kinds = {"adapter0": "none", "adapter1": "linear", "adapter2": "bottleneck"}
    last = train(module.Adapted, 5, encoded, width=16, lr=3e-3, known=1000, **kinds)
    assert last["accuracy"] > 0.35, "0.2 is chance"


@pytest.mark.extension("sharing")
def test_a_text_model_of_all_kinds_of_layers_tells_newsgroups_apart(
    with_data, encoded, monkeypatch
):
    module = with_data("news20/20news-bydate.tar.gz", "nas_text")
    some = [part[:1500] for part in module.messages()]
    monkeypatch.setattr(module, "messages", lambda: some)
    monkeypatch.setattr(module, "VOCABULARY", 2000)
    kinds = {f"op{i}": op for i, op in enumerate(("conv5", "gru", "attention", "max3"))}
    inputs = {"input0": 0, "input1": 1, "input2": 0, "input3": 3}
    last = train(module.News, 3, encoded, lr=5e-3, examples=800, **kinds, **inputs)
    assert last["accuracy"] > 0.15, "0.05 is chance"
