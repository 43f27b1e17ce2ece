"""LeNet-5 on MNIST.

    python examples/mnist_lenet.py

The four IDX files are read from ``$PENSTOCK_DATA/mnist``, else from the user's cache folder, where
they are downloaded once (11 MB).
"""

import gzip
import hashlib
import os
import urllib.request
from pathlib import Path

import numpy as np
import penstock
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
#: MD5 of the canonical files once unpacked: gzip's own header may differ from copy to copy.
FILES = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def folder() -> Path:
    """Return the folder of the files, which may not exist yet."""
    if "PENSTOCK_DATA" in os.environ:
        given = os.environ["PENSTOCK_DATA"]
        if not Path(given).is_dir():
            raise penstock.UsageError.refuse("PENSTOCK_DATA", given, "a folder that exists")
        return Path(given) / "mnist"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "penstock" / "mnist"


def read(name: str) -> np.ndarray:
    """The array in one IDX file (magic number, sizes, bytes). Checked against its digest."""
    path = folder() / f"{name}.gz"
    if not path.exists():
        download(path)
    content = gzip.decompress(path.read_bytes())
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != FILES[name]:
        raise penstock.UsageError(f"{path} is not MNIST's {name}: delete it to get it anew")
    return parse(content)


def parse(content: bytes) -> np.ndarray:
    """The array in the IDX format: two zeros, type 8 (bytes), dimensions, big-endian sizes."""
    zeros, kind, dimensions = int.from_bytes(content[:2], "big"), content[2], content[3]
    if zeros != 0 or kind != 8:
        raise penstock.UsageError("this is no IDX file of bytes")
    shape = np.frombuffer(content, ">i4", count=dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def download(path: Path) -> None:
    """Fetch one file from the canonical mirror; it appears whole or not at all."""
    url = MIRROR + path.name
    print(f"downloading {url} to {path.parent}")
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(url, timeout=30) as answer:
            part.write_bytes(answer.read())
    except OSError as error:
        raise penstock.UsageError(
            f"{path} is not there and {url} cannot be fetched ({error}): put MNIST's four .gz "
            f"files in {path.parent}, or name the folder above it in PENSTOCK_DATA"
        ) from error
    part.replace(path)


class LeNet(penstock.TorchTrainable):
    """LeNet-5 with ReLU and max pooling. Hyperparameters: lr, momentum, batch_size."""

    def data(self):
        train, test = (
            TensorDataset(
                torch.tensor(read(f"{part}-images-idx3-ubyte")).unsqueeze(1),
                torch.tensor(read(f"{part}-labels-idx1-ubyte")).long(),
            )
            for part in ("train", "t10k")
        )
        # The last tenth of the training images chooses between configurations.
        examples = self.params.get("examples", 60_000)
        split = examples * 9 // 10
        return penstock.Data(
            train=Subset(train, range(split)),
            validation=Subset(train, range(split, examples)),
            test=Subset(test, range(examples // 6)),
        )

    def model(self):
        return nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )

    def optimizer(self, model):
        return torch.optim.SGD(
            model.parameters(), lr=self.params["lr"], momentum=self.params["momentum"]
        )

    def scores(self, model, batch):
        images, labels = batch
        return model((images.float() / 255 - 0.1307) / 0.3081), labels

    def loss(self, model, batch):
        return nn.functional.cross_entropy(*self.scores(model, batch))

    def metrics(self, model, batch):
        scores, labels = self.scores(model, batch)
        return {
            "loss": nn.functional.cross_entropy(scores, labels),
            "accuracy": (scores.argmax(1) == labels).float().mean(),
        }


if __name__ == "__main__":
    for name in FILES:  # before anything is started
        read(name)
    study = penstock.create_study(
        direction="maximize",
        metric="accuracy",
        strategy=penstock.ASHA(max_epochs=9, eta=3),
        seed=0,
    )
    study.optimize(
        LeNet,
        space={
            "lr": penstock.Float(1e-3, 3e-1, log=True),
            "momentum": penstock.Float(0.0, 0.95),
            "batch_size": penstock.Categorical([32, 64, 128]),
        },
        n_trials=9,
    )
    best = study.best_trial
    print(f"best: trial {best.number}, validation accuracy {best.value:.4f}, {best.params}")
