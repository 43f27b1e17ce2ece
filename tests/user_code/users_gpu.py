"""Trainables for the tests on a GPU: on a CPU they run, too."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from penstock.testkit.digits import DigitsNet
from torch import nn


class ConvNet(DigitsNet):
    """Convolutions, normalisation and dropout on the digits."""

    batch_size = 64

    def model(self):
        width = self.params["width"]
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(self.params["dropout"]),
            nn.Linear(32 * width, 10),
        )


class Dense(ConvNet):
    """Two linear layers, which a GPU multiplies for all trials at once where that is exact."""

    def model(self):
        width = 16 * self.params["width"]
        return nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 10))


class LongEpochs(ConvNet):
    """Each step is taken many times over, so that an epoch is long enough to be metered."""

    def loss(self, model, batch):
        for _ in range(100 if model.training else 0):
            super().loss(model, batch)
        return super().loss(model, batch)


class SometimesHuge(ConvNet):
    """Asks for a PiB in its second epoch where ``huge`` is 1."""

    def schedule(self, optimizer):
        self.course = super().schedule(optimizer)
        return self.course

    def loss(self, model, batch):
        if self.params["huge"] and self.course.last_epoch == 1:
            torch.empty(1 << 50, dtype=torch.uint8, device=batch[0].device)
        return super().loss(model, batch)


class SaysWhere(ConvNet):
    """Notes what it was told of GPUs, which one it has, and how many it sees."""

    def loss(self, model, batch):
        if batch[0].is_cuda:
            told = os.environ["CUDA_VISIBLE_DEVICES"]
            uuid = torch.cuda.get_device_properties(batch[0].device).uuid
            notes = Path(self.params["notes"]) / "where"
            notes.write_text(f"{told} GPU-{uuid} {torch.cuda.device_count()}")
        return super().loss(model, batch)
