"""Draw the picture of docs/memory.md from a real trace: python docs/memory_picture.py."""

from __future__ import annotations

from pathlib import Path

import torch
from penstock import Data, TorchTrainable
from penstock.base.wording import size_words
from penstock.extensions.memory.traces.allocator import Change
from penstock.extensions.memory.traces.trace import allocated
from penstock.tasks.training import loop
from torch import Tensor, nn
from torch.utils.data import TensorDataset

PICTURE = Path(__file__).parent / "img" / "memory.svg"
#: Pixels.
WIDTH, HEIGHT, LEFT, TOP = 760, 250, 80, 24
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#4b5866}.m{text-anchor:middle}.e{text-anchor:end}"
    ".h{font-weight:600;fill:#16202b}"
)


class Digits(TorchTrainable):
    """A small convolutional network under AdamW, on images of digits' size."""

    batch_size = 64

    def data(self) -> Data:
        images, labels = torch.zeros(256, 1, 28, 28), torch.zeros(256, dtype=torch.long)
        return Data(TensorDataset(images, labels), TensorDataset(images, labels))

    def model(self) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(3136, 256), nn.ReLU(), nn.Linear(256, 10)),
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters())

    def loss(self, model: nn.Module, batch: list[Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def metrics(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        return {"accuracy": (model(batch[0]).argmax(1) == batch[1]).float().mean()}


def main() -> None:
    """Write the picture."""
    code = Digits({})
    found = allocated(loop.start(code, code.data(), 0, 0))
    PICTURE.write_text(drawing(found.changes, found.persistent))


def drawing(changes: list[Change], persistent: int) -> str:
    """Draw the bytes after each change, above the line of those that stay."""
    live, heights = 0, []
    for _, change in changes:
        live += change
        heights.append(live)
    most = max(heights)
    across = (WIDTH - LEFT - 10) / len(heights)
    down = (HEIGHT - TOP - 40) / most
    floor = TOP + most * down
    points = [f"{LEFT:.1f},{floor:.1f}"]
    for i, height in enumerate(heights):
        y = floor - height * down
        points += [f"{LEFT + i * across:.1f},{y:.1f}", f"{LEFT + (i + 1) * across:.1f},{y:.1f}"]
    points.append(f"{WIDTH - 10:.1f},{floor:.1f}")
    stays = floor - persistent * down
    at = LEFT + heights.index(most) * across
    return "".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            "<title>The bytes of a trial's tensors over two steps and an evaluation</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            f'<polygon points="{" ".join(points)}" fill="#9cc4e4"/>',
            (
                f'<rect x="{LEFT}" y="{stays:.1f}" width="{WIDTH - LEFT - 10}" '
                f'height="{floor - stays:.1f}" fill="#2f6f9f" fill-opacity="0.75"/>'
            ),
            f'<text class="e" x="{LEFT - 6}" y="{TOP + 5}">{size_words(most)}</text>',
            f'<text class="e" x="{LEFT - 6}" y="{stays + 4:.1f}">{size_words(persistent)}</text>',
            f'<text class="m h" x="{at:.1f}" y="{TOP - 8}">peak</text>',
            (
                f'<text x="{LEFT}" y="{HEIGHT - 22}">dark: model and optimiser, which stay; '
                "light: what steps and evaluation add</text>"
            ),
            (
                f'<text x="{LEFT}" y="{HEIGHT - 6}">one allocation after another: two steps of '
                "training, then two batches of the validation data</text>"
            ),
            "</svg>\n",
        )
    )


if __name__ == "__main__":
    main()
