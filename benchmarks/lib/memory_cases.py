"""Models of nine families, drawn at random, whose memory ``benchmarks.memory`` asks for.

They are written as PyTorch's users write them, with nothing that helps an estimator. Half of what a
seed draws keeps its data in memory; the others read one example after another.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from penstock import Data, TorchTrainable
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

STEPS = 4
CLASSES = 10
RECURRENT = ("lstm", "gru")


@dataclass(frozen=True, slots=True)
class Case:
    """One trial: its family, and the parameters of its code."""

    family: str
    params: dict[str, Any]


def draw_cases(seed: str, count: int) -> list[Case]:
    """``count`` cases; the families take turns."""
    draw = random.Random(seed)
    names = list(FAMILIES)
    return [_case(draw, names[i % len(names)]) for i in range(count)]


def _case(draw: random.Random, family: str) -> Case:
    return Case(
        family,
        {
            "family": family,
            "width": draw.choice((32, 48, 64, 96, 128)),
            "depth": draw.randint(1, 3),
            "size": draw.choice((16, 24, 32)),
            "batch_size": draw.choice((8, 16, 32, 64, 100)),
            "optimizer": draw.choice(("sgd", "momentum", "adam", "adamw", "rmsprop")),
            "reads": draw.random() < 0.5,
            "clips": draw.random() < 0.3,
        },
    )


class _Examples(Dataset[Any]):
    """The examples of a ``TensorDataset``, one at a time, as from files."""

    def __init__(self, *tensors: Tensor) -> None:
        self._tensors = tensors

    def __len__(self) -> int:
        return len(self._tensors[0])

    def __getitem__(self, i: int) -> Any:
        inputs, label = self._tensors
        return inputs[i].clone(), int(label[i])


class Drawn(TorchTrainable):
    """The trial of a case."""

    eval_batch_size = 128

    def data(self) -> Data:
        n = STEPS * int(self.params["batch_size"])
        return Data(self._examples(n), self._examples(200))

    def _examples(self, n: int) -> Dataset[Any]:
        size, family = self.params["size"], self.params["family"]
        generator = torch.Generator().manual_seed(n)
        labels = torch.randint(CLASSES, (n,), generator=generator)
        if family == "causal":
            inputs = torch.randint(1000, (n, size), generator=generator)
        else:
            shape = FAMILIES[family][1](size)
            inputs = torch.randn(n, *shape, generator=generator)
        kind: Any = _Examples if self.params["reads"] else TensorDataset
        return kind(inputs, labels)  # type: ignore[no-any-return]

    def model(self) -> nn.Module:
        params = self.params
        made: nn.Module = FAMILIES[params["family"]][0](
            params["size"], params["width"], params["depth"]
        )
        return made

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        weights = model.parameters()
        match self.params["optimizer"]:
            case "sgd":
                return torch.optim.SGD(weights, lr=0.01)
            case "momentum":
                return torch.optim.SGD(weights, lr=0.01, momentum=0.9)
            case "adam":
                return torch.optim.Adam(weights)
            case "adamw":
                return torch.optim.AdamW(weights)
            case _:
                return torch.optim.RMSprop(weights)

    def clip(self, model: nn.Module) -> None:
        if self.params["clips"]:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        made = model(inputs)
        if self.params["family"] == "autoencoder":
            return functional.mse_loss(made, inputs)
        if self.params["family"] == "causal":
            return functional.cross_entropy(made[:, :-1].flatten(0, 1), inputs[:, 1:].flatten())
        return functional.cross_entropy(made, labels)

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, Any]:
        if self.params["family"] in ("autoencoder", "causal"):
            return {}
        made = model(batch[0]).argmax(1)
        return {"accuracy": (made == batch[1]).float().mean().item()}


def _image(size: int) -> tuple[int, ...]:
    return 3, size, size


def _flat(size: int) -> tuple[int, ...]:
    return (size * size,)


def _sequence(size: int) -> tuple[int, ...]:
    return size, 24


def _mlp(size: int, width: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(size * size, 8 * width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(8 * width, 8 * width), nn.LayerNorm(8 * width), nn.GELU()]
        layers.append(nn.Dropout(0.1))
    return nn.Sequential(*layers, nn.Linear(8 * width, CLASSES))


def _cnn(size: int, width: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = []
    before = 3
    for _ in range(depth + 1):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


class _Residual(nn.Module):
    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *(nn.Conv2d(width, width, 3, padding=1, groups=groups, bias=False),),
            *(nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.inner(x))


def _residual(size: int, width: int, depth: int) -> nn.Module:
    return _stack(width, depth, groups=1)


def _depthwise(size: int, width: int, depth: int) -> nn.Module:
    return _stack(width, depth, groups=width)


def _stack(width: int, depth: int, groups: int) -> nn.Module:
    blocks = [_Residual(width, groups) for _ in range(depth)]
    stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))
    return nn.Sequential(stem, *blocks, *head)


def _autoencoder(size: int, width: int, depth: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, width, 3, stride=2, padding=1), nn.LeakyReLU()),
        *(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.LeakyReLU()),
        *(nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), nn.LeakyReLU()),
        nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1),
    )


class _Encoder(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(24, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.layers(self.inputs(x)).mean(1))
        return made


def _encoder(size: int, width: int, depth: int) -> nn.Module:
    return _Encoder(width - width % 4, depth)


class _Causal(nn.Module):
    """A small language model with tied embeddings and its own attention."""

    def __init__(self, size: int, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.place = nn.Parameter(torch.zeros(size, width))
        self.mixes = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.head = nn.Linear(width, 1000, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.place
        for mix in self.mixes:
            query, key, value = mix(functional.layer_norm(x, x.shape[-1:])).chunk(3, -1)
            x = x + functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        made: Tensor = self.head(x)
        return made


class _Last(nn.Module):
    def __init__(self, kind: Any, width: int, depth: int) -> None:
        super().__init__()
        self.layers = kind(24, width, depth, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.layers(x)[0][:, -1])
        return made


#: Functions that make each family's model from (size, width, depth), and its examples' shape.
FAMILIES: dict[str, Any] = {
    "mlp": (_mlp, _flat),
    "cnn": (_cnn, _image),
    "residual": (_residual, _image),
    "depthwise": (_depthwise, _image),
    "autoencoder": (_autoencoder, _image),
    "encoder": (_encoder, _sequence),
    "causal": (_Causal, _sequence),
    "lstm": (lambda size, width, depth: _Last(nn.LSTM, width, depth), _sequence),
    "gru": (lambda size, width, depth: _Last(nn.GRU, width, depth), _sequence),
}
