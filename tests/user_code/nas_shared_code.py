"""Training code whose models have choices, on data that the trials of a lane may have in common."""

from __future__ import annotations

from pathlib import Path

import torch
from penstock import Data, nas
from torch import nn

from user_code import encoded_code
from user_code.encoded_code import OnActivations
from user_code.streamed_code import ReadSlowly, Slower
from user_code.trainees import Small


class Net(nas.ModelSpace):
    """Layers of several widths behind ``inputs`` numbers. The dropout changes no shape."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        width = nas.choice("width", [8, 16])
        candidates = {
            "tanh": lambda: nn.Sequential(nn.Linear(inputs, width), nn.Tanh()),
            "deep": lambda: nn.Sequential(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, width)),
        }
        self.body = nas.LayerChoice(candidates, label="op")
        self.dropout = nn.Dropout(nas.choice("dropout", [0.0, 0.3, 0.6]))
        self.head = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.body(x)))


class Telling(Net):
    """Its forward reads what was chosen."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1 + self.architecture["dropout"])


class InMemory(Small):
    """Points in memory."""

    net = Net
    inputs = 4

    def model(self):
        return nas.build(self.net, self.params, inputs=self.inputs)


class ReadsItsChoices(InMemory):
    net = Telling


class ReadByPython(ReadSlowly):
    """Points that Python reads, with noise."""

    model = InMemory.model
    net = Net
    inputs = 4

    def data(self):
        return Data(Slower(80), Slower(10))


class Frozen(OnActivations):
    """Training on the activations that a frozen network gives for points."""

    model = InMemory.model
    net = Net
    inputs = 6


class Noted(encoded_code.Net):
    """Writes how many examples it has computed into a file, whichever process it is in."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def forward(self, x):
        with Path(self.file).open("a") as file:
            file.write(f"{len(x)}\n")
        return super().forward(x)


class FrozenNoted(Frozen):
    def encoder(self):
        return Noted(self.params["file"])
