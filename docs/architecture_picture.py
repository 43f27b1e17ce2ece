"""Draw the picture of docs/nas.md: python docs/architecture_picture.py."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from penstock import nas
from penstock.app.show.drawings.charts import STUDIES
from penstock.extensions.nas.graphs.derivation import described
from penstock.extensions.nas.pictures.outline import boxes_of
from penstock.extensions.nas.pictures.picture import picture
from torch import nn

PICTURE = Path(__file__).parent / "img" / "architecture.svg"
#: The style of the report's page.
STYLE = (
    "svg{color:#16202b}text{font:12px system-ui,sans-serif;fill:#4b5866;text-anchor:middle}"
    ".h{font-weight:600;fill:#16202b}"
)


class Net(nas.ModelSpace):
    """Network with a cell between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.act = nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()
        operations = {
            "conv3": lambda _: nn.Conv2d(16, 16, 3, padding=1),
            "pool": lambda _: nn.MaxPool2d(3, 1, 1),
            "skip": lambda _: nn.Identity(),
        }
        self.cell = nas.Cell(operations, 2, inputs=1, inputs_per_node=1, label="cell")
        self.last, self.head = nn.Conv2d(32, 16, 3, padding=1), nn.Linear(16, 10)

    def example(self) -> torch.Tensor:
        """Return a batch of two small images."""
        return torch.zeros(2, 3, 8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of ten classes."""
        x = self.act(self.stem(x))
        scores: torch.Tensor = self.head((x + self.last(self.cell(x))).mean((2, 3)))
        return scores


@nas.mutator(match=nn.ReLU)
def activation(site: nas.Site) -> None:
    """Replace the activation by another one."""
    site.replace("GELU")


@nas.mutator(match=lambda site: site.name == "last")
def widen(site: nas.Site) -> None:
    """Add channels, and normalise them."""
    site.update(out_channels=24)
    site.insert("BatchNorm2d", 1)


def main() -> None:
    """Write the picture."""
    params = {"cell.0.op0": "conv3", "cell.1.inputs": 1, "cell.1.op0": "pool"}
    _, outline = described(nas.build(Net, params, mutators=[activation, widen]))
    boxes = boxes_of(json.dumps(outline))
    labels = dict.fromkeys(box.label for box in boxes if box.label)
    drawn, width = picture(boxes, dict(zip(labels, STUDIES, strict=False)), "an architecture")
    head, _, body = drawn.partition(">")
    left, top, _, height = (head.partition('viewBox="')[2].rstrip('"')).split()
    page = (
        f"<style>{STYLE}</style>"
        f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{height}" fill="#fff"/>'
    )
    head = head.replace("<svg", f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}"')
    PICTURE.write_text(f"{head}>{page}{body}\n")


if __name__ == "__main__":
    main()
