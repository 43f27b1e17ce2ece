"""LeNet-5 on few or many of MNIST's images."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import penstock
from torch.utils.data import Dataset, Subset

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import mnist_lenet


@cache
def _mnist() -> Dataset[Any]:
    return mnist_lenet.LeNet({}).data().train.dataset


class LeNet(mnist_lenet.LeNet):
    """Trains on ``examples`` images, and validates on a ninth as many."""

    def data(self):
        split, examples = self.params["examples"], self.params["examples"] * 10 // 9
        return penstock.Data(
            train=Subset(_mnist(), range(split)),
            validation=Subset(_mnist(), range(split, examples)),
        )
