"""Measuring a super-net candidate's running statistics again, before it is evaluated.

In a super-net a normalising layer has seen the values of all paths, so its running mean and
variance fit no single path. Z. Guo et al., Single Path One-Shot Neural Architecture Search with
Uniform Sampling, ECCV 2020, section 3.4, computes them again for each candidate over some training
data. Here they are plain means over the statistics of the batches, each with the same weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _NormBase

from ...tasks.contracts.rng import key
from ...tasks.training.evaluation import metered
from ...tasks.training.loop import Tick, batches_of, read_batches
from ...tasks.training.seeding import seed_phase

if TYPE_CHECKING:
    from torch import nn

    from ...tasks.training.training import Training


@dataclass(frozen=True, slots=True)
class Recalibration:
    """The epoch of a candidate. Its running statistics are measured, and nothing is trained."""

    #: The most batches over which running statistics are measured.
    batches: int

    def __call__(self, run: Training, tick: Tick) -> None:
        """Measure running statistics again over the epoch's first batches, one in each step."""
        batches = batches_of(run)[: self.batches]
        names = (run.seed, run.number, run.epoch)
        steps = range(1, len(batches) + 1)
        reads = [key("read", *names, step, 0) for step in steps]
        computing = run.system.computing(run.device)
        with measured_anew(run.model) as layers, torch.no_grad():
            if not layers:
                return
            batch_of = read_batches(run, batches, reads, run.system)
            for step in steps:
                run.pass_turn(training=False)
                tick(run.epoch, step, len(batches))
                with metered(run, step - 1):
                    batch, _ = next(batch_of)
                    seed_phase(run.device, "step", *names, step, 0)
                    with computing:
                        run.code.loss(run.model, batch)


@contextmanager
def measured_anew(model: nn.Module) -> Iterator[list[_NormBase]]:
    """Reset the running statistics of ``model``; passes in training mode then measure them.

    Yields the layers that have running statistics. The old statistics are lost.
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
