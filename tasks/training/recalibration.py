"""Running statistics of a candidate of a super-net, measured anew before it is evaluated.

In a super-net a normalising layer has seen what all paths gave it, so its running mean and variance
are those of no path. Z. Guo et al., Single Path One-Shot Neural Architecture Search with Uniform
Sampling, ECCV 2020, section 3.4, computes them anew for each candidate over some training data.
Here they are plain means over the statistics of the batches, all with one weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.nn.modules.batchnorm import _NormBase

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def measured_anew(model: nn.Module) -> Iterator[list[_NormBase]]:
    """Within it, forward passes of ``model`` in training mode measure its running statistics anew.

    Gives the layers that have some. What they had before is gone.
    """
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, _NormBase) and layer.running_mean is not None
    ]
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # torch's word for the mean over all batches
        yield layers
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
