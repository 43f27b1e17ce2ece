"""Fluid's workloads as examples: they learn, on real data where it is there."""

from __future__ import annotations

import gzip
import importlib.util
import os
import sys
from pathlib import Path

import pytest
import torch
from penstock import UsageError
from penstock.tasks.training import loop

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = Path(os.environ.get("PENSTOCK_DATA", EXAMPLES.parent.parent / "shared" / "data"))


@pytest.fixture
def example(monkeypatch):
    """Imports an example, with the data folder told to it."""

    def load(name, *files, data=DATA):
        absent = [file for file in files if not (data / file).exists()]
        if absent:
            pytest.skip(f"no {', '.join(absent)} in {data}: set PENSTOCK_DATA")
        monkeypatch.setenv("PENSTOCK_DATA", str(data))
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def trained(code, epochs):
    made = loop.start(code, code.data(), seed=0, number=0)
    return [loop.run_epoch(made, lambda *_: None).metrics for _ in range(epochs)]


def test_a_cifar_file_is_read_as_its_format_says(example, tmp_path):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    planes = bytes([1]) * 1024 + bytes([2]) * 1024 + bytes([3]) * 1024
    (folder / "good.gz").write_bytes(gzip.compress(bytes([7]) + planes + bytes([9]) + planes))
    (folder / "bad.gz").write_bytes(gzip.compress(b"short"))
    cifar = example("cifar10_cnn", data=tmp_path)
    images, labels = cifar.read("cifar10/good.gz").tensors
    assert labels.tolist() == [7, 9]
    assert images.shape == (2, 3, 32, 32)
    assert images[0, :, 5, 5].tolist() == [1, 2, 3]
    with pytest.raises(UsageError, match="not CIFAR-10"):
        cifar.read("cifar10/bad.gz")


def test_the_convolution_net_learns(example):
    cifar = example("cifar10_cnn", "cifar10/data_batch_1.bin.gz", "cifar10/test_batch.bin.gz")
    params = {"lr": 0.05, "momentum": 0.8, "conv_1": 8, "conv_2": 16, "dense_1": 32}
    params |= {"dropout_1": 0.05, "dropout_2": 0.1, "examples": 512}
    first, *_, last = trained(cifar.SmallCnn(params), 3)
    assert last["train_loss"] < first["train_loss"]


@pytest.mark.parametrize("kind", ["RNN_TANH", "RNN_RELU", "LSTM", "GRU"])
def test_the_model_of_words_learns(example, tmp_path, kind):
    (tmp_path / "wikitext2").mkdir()
    for split in ("valid", "test"):
        (tmp_path / "wikitext2" / f"{split}.txt").write_text("the cat sat on a mat\n" * 60)
    model = example("word_model", data=tmp_path)
    params = {"model": kind, "batch_size": 10, "bptt": 7, "clip": 0.25, "half_emsize": 4}
    params |= {"nhead": 1, "nhid": 16, "nlayers": 2, "dropout": 0.1, "lr": 5.0}
    first, *_, last = trained(model.WordModel(params), 4)
    assert last["loss"] < first["loss"]


def test_a_sequence_is_followed_by_the_next_words(example, tmp_path):
    model = example("word_model", data=tmp_path)
    before, after = model.WordModel({"bptt": 2}).sequences(torch.arange(6)).tensors
    assert before.tolist() == [[0, 1], [2, 3]]
    assert after.tolist() == [[1, 2], [3, 4]]


def test_each_network_of_the_gan_only_learns_from_its_own_loss(example):
    gan = example("dcgan_mnist", data=EXAMPLES)
    torch.manual_seed(0)
    model, code = gan.Gan(), gan.Dcgan({"netG_lr": 1e-4, "netD_lr": 1e-4})
    images = torch.randint(0, 256, (4, 1, 28, 28), dtype=torch.uint8)
    torch.manual_seed(1)
    code.loss(model, (images, None)).backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    torch.manual_seed(1)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    fake = model.generator(torch.randn(4, gan.NOISE, 1, 1))
    entropy(model.discriminator(fake), torch.ones(4, 1)).backward()
    for name, weight in model.generator.named_parameters():
        torch.testing.assert_close(found[f"generator.{name}"], weight.grad)
    model.zero_grad()
    told = torch.cat(
        [model.discriminator(images.float() / 127.5 - 1), model.discriminator(fake.detach())]
    )
    (2 * entropy(told, torch.cat([torch.ones(4, 1), torch.zeros(4, 1)]))).backward()
    for name, weight in model.discriminator.named_parameters():
        torch.testing.assert_close(found[f"discriminator.{name}"], weight.grad)


def test_the_gans_score_is_between_one_and_ten(example):
    gan = example("dcgan_mnist", "mnist/train-images-idx3-ubyte.gz")
    code = gan.Dcgan({"netG_lr": 4e-4, "netD_lr": 4e-4, "examples": 64})
    (metrics,) = trained(code, 1)
    assert 1.0 <= metrics["score"] <= 10.0
    images, labels = (each[-1000:] for each in gan.digits().tensors)
    found = gan.classifier()((images.float() / 255 - 0.1307) / 0.3081).argmax(1)
    assert (found == labels).float().mean() > 0.9
