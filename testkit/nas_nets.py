"""Four small nets in the manner of MnasNet, DARTS, ResNet and DenseNet, to be mutated."""

from __future__ import annotations

import torch
from penstock import nas
from torch import Tensor, nn


class Net(nas.ModelSpace):
    """Ten numbers an image of 3 x 16 x 16."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = conv(3, width, 3)
        self.body, width = self.layers(width)
        self.head = nn.Linear(width, 10)

    def layers(self, width: int) -> tuple[nn.Module, int]:
        raise NotImplementedError

    def example(self) -> Tensor:
        return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)).mean((2, 3)))  # type: ignore[no-any-return]


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, **options: int) -> nn.Sequential:
    """Convolution, batch norm, activation."""
    padding = kernel // 2 * options.get("dilation", 1)
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False, **options)  # type: ignore[arg-type]
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


class Excitation(nn.Module):
    """A gate for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.squeeze, self.expand = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(self.squeeze(x.mean((2, 3), keepdim=True)).relu()).sigmoid()
        return x * gate  # type: ignore[no-any-return]


class Inverted(nn.Module):
    """Widen, convolve each channel by itself, gate, narrow; a shortcut where sizes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = 3 * inputs
        self.branch = nn.Sequential(
            conv(inputs, wide, 1),
            conv(wide, wide, kernel, stride, groups=wide),
            Excitation(wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x) if self.shortcut else self.branch(x)


class MnasLike(Net):
    """M. Tan et al., MnasNet, CVPR 2019."""

    def layers(self, width: int) -> tuple[nn.Module, int]:
        blocks = [Inverted(width, width, 3, 1), Inverted(width, 2 * width, 5, 2)]
        return nn.Sequential(*blocks, Inverted(2 * width, 2 * width, 3, 1)), 2 * width


class Residual(nn.Module):
    """Two convolutions, or three with a narrow one in the middle, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, narrow: bool) -> None:
        super().__init__()
        inner = outputs // 2 if narrow else outputs
        layers = [conv(inputs, inner, 1 if narrow else 3, stride)]
        layers += [conv(inner, inner, 3)] if narrow else []
        last = nn.Conv2d(inner, outputs, 1 if narrow else 3, padding=0 if narrow else 1, bias=False)
        self.branch = nn.Sequential(*layers, last, nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            layer = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(layer, nn.BatchNorm2d(outputs))  # type: ignore[assignment]
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.shortcut(x) + self.branch(x))  # type: ignore[no-any-return]


class ResLike(Net):
    """K. He et al., Deep residual learning, CVPR 2016: basic and bottleneck blocks."""

    def layers(self, width: int) -> tuple[nn.Module, int]:
        blocks = [
            Residual(width, width, 1, narrow=False),
            Residual(width, 2 * width, 2, narrow=False),
            Residual(2 * width, 2 * width, 1, narrow=True),
        ]
        return nn.Sequential(*blocks), 2 * width


class Dense(nn.Module):
    """A block that appends a few channels to its input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm, self.act = nn.BatchNorm2d(inputs), nn.ReLU()
        self.inner, self.last = conv(inputs, 2 * growth, 1), nn.Conv2d(2 * growth, growth, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.last(self.inner(self.act(self.norm(x))))], 1)


class DenseLike(Net):
    """G. Huang et al., Densely connected convolutional networks, CVPR 2017: two dense blocks."""

    def layers(self, width: int) -> tuple[nn.Module, int]:
        layers: list[nn.Module] = []
        for block in range(2):
            for _ in range(3):
                layers.append(Dense(width, 8))
                width += 8
            if block == 0:
                layers += [conv(width, width // 2, 1), nn.AvgPool2d(2)]
                width //= 2
        return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU()), width


class Edge(nn.Module):
    """An operation of a cell."""

    def __init__(self, kind: str, width: int, stride: int) -> None:
        super().__init__()
        self.operation: nn.Module
        if kind == "separable":
            depthwise = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
            self.operation = nn.Sequential(nn.ReLU(), depthwise, conv(width, width, 1))
        elif kind == "dilated":
            self.operation = conv(width, width, 3, stride, dilation=2)
        elif kind == "pool":
            self.operation = nn.MaxPool2d(3, stride, 1)
        else:
            self.operation = nn.Identity() if stride == 1 else conv(width, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return self.operation(x)  # type: ignore[no-any-return]


class DartsCell(nn.Module):
    """Three nodes of two inputs each, concatenated."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.before = conv(inputs, width, 1)
        strides = [stride, stride, 1, stride, 1, 1]
        kinds = ["separable", "skip", "dilated", "pool", "separable", "skip"]
        self.edges = nn.ModuleList(map(Edge, kinds, [width] * 6, strides))
        self.places = [0, 0, 1, 0, 2, 1]

    def forward(self, x: Tensor) -> Tensor:
        states = [self.before(x)]
        for node in range(3):
            one, other = (
                edge(states[place])
                for edge, place in zip(
                    self.edges[2 * node : 2 * node + 2],
                    self.places[2 * node : 2 * node + 2],
                    strict=True,
                )
            )
            states.append(one + other)
        return torch.cat(states[1:], 1)


class DartsLike(Net):
    """H. Liu et al., DARTS, ICLR 2019: a normal, a reduction and a normal cell."""

    def layers(self, width: int) -> tuple[nn.Module, int]:
        cells = [DartsCell(width, 8, 1), DartsCell(24, 16, 2), DartsCell(48, 16, 1)]
        return nn.Sequential(*cells), 48


#: By the name that the figures have.
NETS: dict[str, type[Net]] = {
    "mnasnet": MnasLike,
    "darts": DartsLike,
    "resnet": ResLike,
    "densenet": DenseLike,
}
WIDTH = 16
