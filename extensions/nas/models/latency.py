"""How long one forward pass of a model takes, measured where the model is."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ....base.errors import UsageError
from ....tasks.system.unchanged import unchanged
from ..graphs.capture import inputs_of
from .counts import device_of, moved


@dataclass(frozen=True, slots=True)
class Latency:
    """What was measured: the times of ``runs`` forward passes, and under which circumstances."""

    #: The median (milliseconds).
    ms: float
    #: The quartiles (milliseconds).
    quartiles: tuple[float, float]
    #: How many passes were timed, after those of the warm-up.
    runs: int
    #: The name of the device: that of the GPU, or ``cpu``.
    device: str
    #: torch's threads.
    threads: int
    #: The shapes of the inputs.
    shapes: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        low, high = self.quartiles
        shapes = ", ".join(" x ".join(map(str, each)) for each in self.shapes)
        found = f"{self.ms:.3g} ms (median of {self.runs}, quartiles {low:.3g} and {high:.3g}"
        return f"{found}; {shapes} on {self.device}, {self.threads} threads)"


def latency(net: nn.Module, example: Any = None, *, runs: int = 30, warm_up: int = 5) -> Latency:
    """The time of one forward pass of ``net`` on ``example``, on the device where ``net`` is.

    In evaluation, without gradients, with the number of threads that torch has now. In
    ``fixed_metrics`` that is the trial's own device, in the state in which the trial is trained:
    what else is at work there lengthens it. ``warm_up`` passes come first and are not timed.
    ``example`` as for ``flops``; it is moved to the device before. Raises UsageError for a model
    without weights (``meta``), fewer than one run, and where there is no example.
    """
    if not isinstance(runs, int) or isinstance(runs, bool) or runs < 1:
        raise UsageError.refuse("runs", runs, "an int of 1 or more")
    if not isinstance(warm_up, int) or isinstance(warm_up, bool) or warm_up < 0:
        raise UsageError.refuse("warm_up", warm_up, "an int of 0 or more")
    device = device_of(net)
    if device.type == "meta":
        allowed = "a model with weights: on the meta device nothing is computed"
        raise UsageError.refuse("net", f"a {type(net).__name__} on {device}", allowed)
    inputs = moved(net, inputs_of(net, example))
    took = []
    with unchanged(net), torch.inference_mode():
        net.eval()
        for number in range(-warm_up, runs):
            _finish(device)
            began = time.perf_counter()
            net(*inputs)
            _finish(device)
            if number >= 0:
                took.append(1000 * (time.perf_counter() - began))
    low, middle, high = statistics.quantiles(took, n=4) if runs > 1 else took * 3
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    shapes = tuple(
        tuple(each.shape) for each in tree_flatten(inputs)[0] if isinstance(each, Tensor)
    )
    return Latency(middle, (low, high), runs, name, torch.get_num_threads(), shapes)


def _finish(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
