"""The user's module of an attack with a class: copied for each, since acts spoil it."""

from __future__ import annotations

import os

import penstock
import torch
from penstock.tasks.process.lifeline import MARK_VARIABLE
from penstock.tests.hostile.acts import KEEP, perform
from penstock.tests.hostile.terms import value
from torch.utils.data import TensorDataset

AT_IMPORT = ""
MOMENTS = ("first", "middle", "last")


class Counting(torch.nn.Linear):
    """It knows in its state how many epochs it was trained: a replay acts where the first did."""

    def __init__(self) -> None:
        super().__init__(2, 1)
        self.register_buffer("trained", torch.zeros((), dtype=torch.int64))


class Trained(penstock.TorchTrainable):
    """Next to nothing to train; one batch, so that ``metrics`` is called once an epoch."""

    batch_size = 8

    def data(self):
        rows = TensorDataset(torch.ones(8, 2), torch.ones(8, 1))
        return penstock.Data(train=rows, validation=rows)

    def model(self):
        return Counting()

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def loss(self, model, batch):
        model.trained += model.training  # the validation loss is not an epoch
        return ((model(batch[0]) - batch[1]) ** 2).mean()

    def metrics(self, model, batch):
        found = KEEP
        if self.params["moment"] == MOMENTS[min(int(model.trained) - 1, 2)]:
            found = perform(self.params["act"], __file__)
        return {"value": torch.tensor(value(self.params["x"], 0)) if found is KEEP else found}


# In trainers only: the client, too, imports the module.
if AT_IMPORT and MARK_VARIABLE in os.environ:
    perform(AT_IMPORT, __file__)
