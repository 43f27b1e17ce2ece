"""Are the first epochs of architectures that nobody has trained predicted by what they are?

Architectures at random of the MnasNet space, at a quarter of its width, are trained for an epoch on
scikit-learn's digits (8 x 8, enlarged to 32 x 32), at one thread. The engine's own cost table gets
them one after the other, as a study does, and is asked for each before: ``pool`` without features,
``choices`` with the choices alone (as it is for a study whose models are not known to make
choices), ``counts`` with what a trainer counts. An epoch's seconds are those of the process, since
other work on the machine says nothing of an architecture.
"""

from __future__ import annotations

import math
import time
from functools import partial
from random import Random
from statistics import median
from typing import Any

import penstock
import torch
from penstock import nas
from penstock.app.spec.space import parse_space
from penstock.extensions.nas.models.architecture import Architectures
from penstock.extensions.nas.models.counting import counted
from penstock.profiling.costs.table import CostTable
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec
from penstock.scheduler.state.encoding import features_of
from penstock.tasks.training import loop
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from testkit.nas_spaces import MnasNet

#: Trials before the first prediction that counts.
BEFORE = 8
EXAMPLES = 384


class Enlarged(penstock.TorchTrainable):
    """Digits as large as CIFAR's images."""

    batch_size = 32

    def data(self) -> penstock.Data:
        digits = load_digits()
        images = torch.tensor(digits.images[:EXAMPLES] / 16, dtype=torch.float32).unsqueeze(1)
        images = nn.functional.interpolate(images, scale_factor=4).expand(-1, 3, -1, -1)
        labels = torch.tensor(digits.target[:EXAMPLES])
        points = TensorDataset(images.contiguous(), labels)
        return penstock.Data(train=points, validation=TensorDataset(*points[:64]))

    def model(self) -> nn.Module:
        return nas.build(MnasNet, self.params, width=0.25)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)


def predicted(trials: int) -> dict[str, Any]:
    r"""Median and 90th percentile of \|log(predicted / measured)\|, and what counting took."""
    torch.set_num_threads(1)
    space = nas.space(MnasNet, width=0.25)
    spec = StudySpec(
        id="s", name="s", contract="torch", code=Code("a:b", "", ""), metric="loss",
        direction="minimize", n_trials=trials, space=parse_space(space),
        strategy=StrategySpec("full", max_epochs=1),
    )  # fmt: skip
    chance, known = Random(0), Architectures()
    tables = {name: CostTable() for name in ("pool", "choices", "counts")}
    errors: dict[str, list[float]] = {name: [] for name in tables}
    counting, epochs = list[float](), list[float]()
    for number in range(trials):
        params = {label: chance.choice(each.choices) for label, each in space.items()}
        code = Enlarged(params)
        training = loop.start(code, code.data(), 0, number)
        one = tuple(each[:1].to("meta") for each in training.data.train.tensors)  # type: ignore[attr-defined]
        began = time.process_time()
        found = counted(code, params, one)
        assert found is not None
        counting.append(time.process_time() - began)
        known.observe(*found)
        given = tuple(params.items())
        features = {
            "pool": (),
            "choices": features_of(spec, given),
            "counts": (*known.features(found[0]), *features_of(spec, given, tuple(known.choices))),
        }
        began = time.process_time()
        loop.run_epoch(training, lambda *_: None)
        epochs.append(seconds := time.process_time() - began)
        for name, table in tables.items():
            expected = table.seconds_at("s", str(number), 1, features[name])
            if number >= BEFORE and expected is not None:
                errors[name].append(abs(math.log(expected / seconds)))
            table.observe_epoch("s", str(number), seconds, 1, partial(tuple, features[name]))
    spread = [abs(math.log(each / median(epochs))) for each in epochs]
    found_here: dict[str, Any] = {
        "trials": trials,
        "epoch_seconds": median(epochs),
        "spread": median(spread),
        "counting_seconds": median(counting),
    }
    for name, each in errors.items():
        found_here[f"{name}.median"] = median(each)
        found_here[f"{name}.p90"] = sorted(each)[int(0.9 * len(each))]
    return {f"features.{key}": value for key, value in found_here.items()}
