"""Counts of a model: its parameters, and the floating point operations of one forward pass.

Operations are counted by torch's own counter while the model runs on torch's ``meta`` device. So
nothing is computed, no weights are needed, and the count does not depend on the machine. On a CPU
or a GPU, a recurrent layer or attention may run as one kernel that the counter does not know. If a
model's code reads the values of tensors, the model runs on its own device, with those kernels
switched off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from ....base.errors import UsageError
from ....tasks.system.unchanged import unchanged
from ..graphs.capture import inputs_of


def parameters(net: nn.Module) -> int:
    """Return the number of elements of all parameters that require a gradient, each counted once.

    Raises UsageError if ``net`` is no model, for example its class.
    """
    if not isinstance(net, nn.Module):
        raise UsageError.refuse("net", net, "a torch.nn.Module that was made")
    return sum(each.numel() for each in net.parameters() if each.requires_grad)


def flops(net: nn.Module, example: Any = None) -> int:
    """Return the number of floating point operations of one forward pass of ``net`` in evaluation.

    The multiplications and additions of convolutions, matrix products and attention are counted, so
    a multiply-add is two operations. Normalisation, activations, pooling, additions of tensors and
    biases are not counted. Divide by 2 to get multiply-adds. Give a batch of one as ``example`` to
    get the count of a single example.

    ``example`` is the input, or several in a tuple; by default it is ``net.example()``. Only its
    shapes matter. ``net`` may be on the ``meta`` device, without weights. Raises UsageError if
    there is no example, and any error of the model.
    """
    inputs = inputs_of(net, example)
    with unchanged(net), torch.no_grad():
        net.eval()
        try:
            return _on_meta(net, inputs)
        except Exception:  # code that reads a tensor's values needs them; others fail again
            return _where_it_is(net, inputs)


def _on_meta(net: nn.Module, inputs: Sequence[Any]) -> int:
    state = {name: _meta(each) for name, each in (*net.named_parameters(), *net.named_buffers())}
    shapes = tree_map_only(Tensor, _meta, tuple(inputs))
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        torch.func.functional_call(net, state, shapes)
    return int(counter.get_total_flops())


def _where_it_is(net: nn.Module, inputs: Sequence[Any]) -> int:
    with _in_small_kernels(), FlopCounterMode(display=False) as counter:
        net(*moved(net, inputs))
    return int(counter.get_total_flops())


@contextmanager
def _in_small_kernels() -> Iterator[None]:
    """Run recurrent layers and attention as matrix products, which torch's counter knows."""
    switches = [
        (torch.backends.mha.get_fastpath_enabled(), torch.backends.mha.set_fastpath_enabled),
        (torch._C._get_mkldnn_enabled(), torch._C._set_mkldnn_enabled),
        (torch._C._get_cudnn_enabled(), torch._C._set_cudnn_enabled),
    ]
    try:
        for _, turn in switches:
            turn(False)
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        for before, turn in switches:
            turn(before)


def moved(net: nn.Module, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return ``inputs`` on the device of ``net``."""
    device = device_of(net)
    tensors: tuple[Any, ...] = tree_map_only(Tensor, lambda each: each.to(device), tuple(inputs))
    return tensors


def device_of(net: nn.Module) -> torch.device:
    """Return the device of the first tensor of ``net``; the CPU if it has none."""
    tensors = (*net.parameters(), *net.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


def _meta(each: Tensor) -> Tensor:
    return torch.empty_like(each, device="meta")
