"""The time of one forward pass of a model, measured on the model's device."""

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
    """The measured times of ``runs`` forward passes, and the conditions of the measurement."""

    #: The median time of a pass (milliseconds).
    ms: float
    #: The quartiles of the times (milliseconds).
    quartiles: tuple[float, float]
    #: Number of passes that were timed. The passes of the warm-up are not among them.
    runs: int
    #: The name of the GPU, or ``cpu``.
    device: str
    #: Number of threads that torch used.
    threads: int
    #: The shapes of the inputs.
    shapes: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        low, high = self.quartiles
        shapes = ", ".join(" x ".join(map(str, each)) for each in self.shapes)
        summary = f"{self.ms:.3g} ms (median of {self.runs}, quartiles {low:.3g} and {high:.3g}"
        return f"{summary}; {shapes} on {self.device}, {self.threads} threads)"


def latency(net: nn.Module, example: Any = None, *, runs: int = 30, warm_up: int = 5) -> Latency:
    """Return the time of one forward pass of ``net`` on ``example``, on the device of ``net``.

    The time is measured in evaluation mode, without gradients, with torch's current number of
    threads. If called in ``fixed_metrics``, it is measured on the trial's own device, where other
    trials' work lengthens it. ``warm_up`` passes come first and are not timed. ``example`` has the
    same form as for ``flops``, and is moved to the device first. Raises UsageError for a model
    without weights (on ``meta``), for fewer than one run, and if there is no example.
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
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
