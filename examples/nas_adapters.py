"""Search adapters of a frozen network, which each image passes once, on CIFAR-10.

    PENSTOCK_DATA=<folder> python examples/nas_adapters.py

Reads CIFAR-10 as examples/nas_cifar10.py does. A net that has learned classes 0 to 4 is frozen
(``encoder()``). With 250 images adapters learn 5 to 9 from what its blocks compute: a ladder with a
small layer a block, or none, as wide as is chosen (Y. Sung et al., LST, NeurIPS 2022). All trials
share the activations. In the seats of a lane those of one architecture are trained together:
``penstock up --devices cpu:2x1*1x16`` first.
"""

import gzip
import os
from functools import cache
from pathlib import Path

import numpy as np
import penstock
import torch
from penstock import nas
from torch import nn
from torch.utils.data import TensorDataset

FILES = ("cifar10/data_batch_1.bin.gz", "cifar10/test_batch.bin.gz")
CHANNELS = (24, 48, 64)
EXAMPLES = 250


@cache
def read(file):
    """Images, 3 x 32 x 32 numbers around 0, and labels."""
    path = Path(os.environ.get("PENSTOCK_DATA", ".")) / file
    rows = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8).reshape(-1, 3073)
    images = torch.tensor(rows[:, 1:].reshape(-1, 3, 32, 32)).float() / 128 - 1
    return images, torch.tensor(rows[:, 0]).long()


class Blocks(nn.Module):
    """Three convolutions. It gives what each one has made, four means a channel, in a row."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU())
            for i, o in zip((3, *CHANNELS), CHANNELS, strict=False)
        )

    def forward(self, x):
        made = []
        for block in self.blocks:
            x = block(x)
            made.append(nn.functional.adaptive_avg_pool2d(x, 2).flatten(1))
        return torch.cat(made, 1)


class Ladder(nas.ModelSpace):
    """The sum of what an adapter makes of each block, and five scores."""

    def __init__(self):
        super().__init__()
        width = nas.choice("width", [8, 16, 32])
        self.none = nn.Parameter(torch.zeros(width))  # where no block has an adapter
        self.adapters = nn.ModuleList(
            nas.LayerChoice(
                {
                    "linear": lambda inputs=4 * channels: nn.Linear(inputs, width),
                    "bottleneck": lambda inputs=4 * channels: nn.Sequential(
                        nn.Linear(inputs, 4), nn.GELU(), nn.Linear(4, width)
                    ),
                    "none": nn.Identity,
                },
                label=f"adapter{i}",
            )
            for i, channels in enumerate(CHANNELS)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 5))

    def forward(self, activations):
        made = self.none
        blocks = activations.split([4 * each for each in CHANNELS], 1)
        for adapter, block in zip(self.adapters, blocks, strict=True):
            if adapter.key != "none":
                made = made + adapter(block)
        return self.head(made.expand(len(activations), -1))


class Adapted(penstock.TorchTrainable):
    """Hyperparameters: lr, and the choices of ``Ladder``; ``known`` images are learned before."""

    batch_size = 25

    def data(self):
        train, test = ((x[y > 4], y[y > 4] - 5) for x, y in map(read, FILES))
        return penstock.Data(
            train=TensorDataset(*(each[:EXAMPLES] for each in train)),
            validation=TensorDataset(*test),
        )

    def encoder(self):
        """The same network in each trainer; elsewhere it would be read from a file."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net, head = Blocks(), nn.Linear(4 * CHANNELS[-1], 5)
            optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=3e-3)
            images, labels = read(FILES[0])
            known = (labels < 5).nonzero()[: self.params.get("known", 5000), 0]
            for _ in range(3):
                for part in known[torch.randperm(len(known))].split(64):
                    optimizer.zero_grad()
                    scores = head(net(images[part])[:, -4 * CHANNELS[-1] :])
                    nn.functional.cross_entropy(scores, labels[part]).backward()
                    optimizer.step()
        return net.eval().requires_grad_(False)

    def model(self):
        return nas.build(Ladder, self.params)

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.params["lr"])

    def loss(self, model, batch):
        activations, labels = batch
        return nn.functional.cross_entropy(model(activations), labels)

    def metrics(self, model, batch):
        activations, labels = batch
        return {"accuracy": (model(activations).argmax(1) == labels).float().mean()}


def space():
    """The choices of ``Ladder`` and the learning rate."""
    return nas.space(Ladder) | {"lr": penstock.Float(1e-3, 1e-2, log=True)}


if __name__ == "__main__":
    study = penstock.create_study(
        direction="maximize", metric="accuracy", strategy=penstock.ASHA(max_epochs=27), seed=0
    )
    study.optimize(Adapted, space(), n_trials=40)
    print(f"accuracy {study.best_value:.3f} with {study.best_params}")
