"""Trials whose system parameters are turned, and what they are trained with."""

import torch
from penstock.tasks.system.system import System
from penstock.tasks.training import loop
from penstock.tasks.training.data import materialise
from torch import nn
from torch.utils.data import Dataset

from user_code import trainees

WORKERS, ONE = (("loader_workers", 1),), (("threads", 1),)


LAST = (("memory_format", "channels_last"),)


class Noisy(Dataset):
    """Examples that draw from all three generators when they are read."""

    def __len__(self):
        return 80

    def __getitem__(self, i):
        import random

        import numpy

        noise = torch.rand(()) + random.random() + float(numpy.random.rand())
        return trainees.points()[i][0] + 0.1 * noise, trainees.points()[i][1]


class Drawn(trainees.Small):
    """A data set that draws while it is read; its loss draws, too."""

    batch_size = 4

    def data(self):
        return trainees.Data(Noisy(), Noisy())


class Pictures(trainees.Small):
    """A small convolutional network with momentum."""

    batch_size = 16

    def data(self):
        x = torch.randn(64, 3, 12, 12, generator=torch.Generator().manual_seed(2))
        data = torch.utils.data.TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())
        return trainees.Data(data, data)

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 2)
        )


def training(code=Drawn, number=0, shards=1, **system):
    code = code({})
    data = code.data()
    data = trainees.Data(materialise(data.train, "t"), materialise(data.validation, "v"))
    run = loop.start(code, data, 7, number, shards, system=System(system))
    run.system.enter()
    return run


def epochs(run, n=2):
    return [(loop.run_epoch(run, lambda *_: None).metrics, run.hash()) for _ in range(n)]


class Touchy(Pictures):
    """Its loss cannot bear one thread: it raises, or ends its process."""

    end = staticmethod(lambda: 1 / 0)

    def loss(self, model, batch):
        if torch.get_num_threads() == 1:
            self.end()
        return super().loss(model, batch)


class Hungry(Touchy):
    """On one thread it wants 8 GiB more."""

    end = staticmethod(lambda: torch.ones(1 << 31))
