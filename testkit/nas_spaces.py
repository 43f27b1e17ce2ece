"""Three published spaces of models, written with ``penstock.nas`` as their papers describe them.

Their sizes are nowhere in here: the benchmark counts what the dry run finds.
"""

from __future__ import annotations

from random import Random
from typing import Any

from penstock import nas
from penstock.app.spec.conditions import parse_conditions, without_inactive
from torch import Tensor, nn


class Zero(nn.Module):
    """An edge that is not there."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 0


def conv(inputs: int, outputs: int, kernel: int, **options: int) -> nn.Sequential:
    """Convolution of the same size, batch norm, activation."""
    padding = kernel // 2 * options.get("dilation", 1)
    layer = nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False, **options)  # type: ignore[arg-type]
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


class NasBench201(nas.ModelSpace):
    """X. Dong, Y. Yang, NAS-Bench-201, ICLR 2020: four nodes, an operation on each edge."""

    def __init__(self, width: int = 16, cells: int = 3) -> None:
        super().__init__()
        self.stem = conv(3, width, 3)
        self.cells = nn.ModuleList(NasBench201Cell(width) for _ in range(cells))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for cell in self.cells:
            x = cell(x)
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class NasBench201Cell(nn.Module):
    """The same choices in every cell."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.nodes = nn.ModuleList(
            nn.ModuleList(
                nas.LayerChoice(
                    {
                        "none": Zero,
                        "skip": nn.Identity,
                        "conv1": lambda: conv(width, width, 1),
                        "conv3": lambda: conv(width, width, 3),
                        "pool3": lambda: nn.AvgPool2d(3, 1, 1),
                    },
                    label=f"{source}-{node}",
                )
                for source in range(node)
            )
            for node in range(1, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        for edges in self.nodes:
            states.append(sum(edge(state) for edge, state in zip(edges, states, strict=True)))  # type: ignore[arg-type, call-overload]
        return states[-1]


class Darts(nas.ModelSpace):
    """H. Liu, K. Simonyan, Y. Yang, DARTS, ICLR 2019: normal and reduction cells."""

    def __init__(self, width: int = 4, cells: int = 3) -> None:
        super().__init__()
        self.stem = conv(3, width, 3)
        self.adapters, self.cells = nn.ModuleList(), nn.ModuleList()
        before, last, self.reduced = width, width, []
        shrunk = False
        for cell in range(cells):
            reduces = cell in {cells // 3, 2 * cells // 3}
            width *= 2 if reduces else 1
            # The cell before the last is twice as large where the last one reduces.
            steps = [{"stride": 2} if shrunk else {}, {}]
            self.adapters.append(
                nn.ModuleList(
                    conv(channels, width, 1, **step)
                    for channels, step in zip((before, last), steps, strict=True)
                )
            )
            self.cells.append(darts_cell(width, "reduce" if reduces else "normal"))
            before, last, shrunk = last, 4 * width, reduces
        self.head = nn.Linear(last, 10)

    def forward(self, x: Tensor) -> Tensor:
        before = last = self.stem(x)
        for adapters, cell in zip(self.adapters, self.cells, strict=True):
            first, second = adapters  # type: ignore[misc]
            before, last = last, cell(first(before), second(last))
        return self.head(last.mean((2, 3)))  # type: ignore[no-any-return]


def darts_cell(width: int, label: str) -> nas.Cell:
    """Four nodes of two inputs each, and the seven operations that are not zero."""

    def separable(kernel: int, stride: int, dilation: int) -> nn.Sequential:
        padding = kernel // 2 * dilation
        return nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(
                width, width, kernel, stride, padding, dilation=dilation, groups=width, bias=False
            ),
            nn.Conv2d(width, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def stride(source: int) -> int:
        return 2 if label == "reduce" and source < 2 else 1

    def skip(source: int) -> nn.Module:
        return nn.Identity() if stride(source) == 1 else nn.AvgPool2d(1, 2)

    return nas.Cell(
        {
            "max3": lambda source: nn.MaxPool2d(3, stride(source), 1),
            "avg3": lambda source: nn.AvgPool2d(3, stride(source), 1),
            "skip": skip,
            "sep3": lambda source: separable(3, stride(source), 1),
            "sep5": lambda source: separable(5, stride(source), 1),
            "dil3": lambda source: separable(3, stride(source), 2),
            "dil5": lambda source: separable(5, stride(source), 2),
        },
        nodes=4,
        label=label,
    )


class SqueezeExcite(nn.Module):
    """Channels scaled by what a bottleneck makes of their means."""

    def __init__(self, width: int, ratio: float) -> None:
        super().__init__()
        inner = max(1, int(width * ratio))
        self.scales = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, inner, 1),
            nn.ReLU(),
            nn.Conv2d(inner, width, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scales(x)  # type: ignore[no-any-return]


class MnasNet(nas.ModelSpace):
    """M. Tan et al., MnasNet, CVPR 2019: what each of five blocks is made of, and how long it is.

    Filters and layers are relative to MobileNetV2's, whose first five widths and depths stand here.
    """

    WIDTHS, DEPTHS = (16, 24, 32, 64, 96), (1, 2, 3, 4, 3)

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        channels = int(32 * width)
        self.stem = conv(3, channels, 3, stride=2)
        self.blocks = nn.ModuleList()
        for block, (reference, depth) in enumerate(zip(self.WIDTHS, self.DEPTHS, strict=True)):
            filters = int(reference * width * nas.choice(f"filters{block}", [0.75, 1.0, 1.25]))
            count = max(1, depth + nas.choice(f"layers{block}", [-1, 0, 1]))
            for layer in range(count):
                stride = 2 if layer == 0 and block else 1
                self.blocks.append(MnasLayer(channels, filters, stride, f"{block}"))
                channels = filters
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.blocks:
            x = layer(x)
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class MnasLayer(nn.Module):
    """A layer; all of a block have the same choices."""

    def __init__(self, inputs: int, outputs: int, stride: int, block: str) -> None:
        super().__init__()
        kernel = nas.choice(f"kernel{block}", [3, 5])
        ratio = nas.choice(f"se{block}", [0.0, 0.25])
        self.skip = nas.choice(f"skip{block}", ["pool", "identity", "none"])

        def depthwise(width: int, step: int) -> nn.Sequential:
            return conv(width, width, kernel, groups=width, stride=step)

        def inverted(expansion: int) -> nn.Sequential:
            wide = inputs * expansion
            return nn.Sequential(
                conv(inputs, wide, 1), depthwise(wide, stride), nn.Conv2d(wide, outputs, 1)
            )

        self.layer = nas.LayerChoice(
            {
                "conv": lambda: conv(inputs, outputs, kernel, stride=stride),
                "dconv": lambda: nn.Sequential(
                    depthwise(inputs, stride), nn.Conv2d(inputs, outputs, 1)
                ),
                "mbconv3": lambda: inverted(3),
                "mbconv6": lambda: inverted(6),
            },
            label=f"op{block}",
        )
        self.se = SqueezeExcite(outputs, ratio) if ratio else nn.Identity()
        self.pool = nn.MaxPool2d(3, 1, 1)
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.se(self.layer(x))
        if self.same and self.skip != "none":
            y = y + (x if self.skip == "identity" else self.pool(x))
        return y  # type: ignore[no-any-return]


def at_random(space: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """``count`` configurations, always the same ones."""
    chance = Random(0)
    conditions = parse_conditions(space)
    return [
        without_inactive(
            {label: chance.choice(each.choices) for label, each in space.items()}, conditions
        )
        for _ in range(count)
    ]
