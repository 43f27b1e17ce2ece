"""Rules that fit a layer to the shape of its input, if there is exactly one way.

Each rule takes a layer and the shape of its input, and returns the layer's arguments to change,
with their new values. The result is empty if the layer fits. If there are several ways, the rule
raises ``Ambiguous`` with all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from torch import nn

from .shapes import Shape


class Ambiguous(Exception):
    """A layer does not fit its input, and there are several ways, or none, to make it fit."""


def convolution(layer: Any, shape: Shape) -> dict[str, Any]:
    """Fit the input channels. Depthwise layers keep their multiplier, others their groups."""
    channels = _channels(layer, shape, len(layer.kernel_size))
    if channels == layer.in_channels:
        return {}
    if layer.groups == 1:
        return {"in_channels": channels}
    if layer.groups == layer.in_channels and layer.out_channels % layer.groups == 0:
        multiplier = layer.out_channels // layer.groups
        return {
            "in_channels": channels,
            "out_channels": channels * multiplier,
            "groups": channels,
        }
    if channels % layer.groups == 0:
        return {"in_channels": channels}
    raise Ambiguous(
        f"{channels} channels come in, and its {layer.groups} groups do not divide them:"
        f" groups may be {_divisors(gcd(channels, layer.out_channels))}"
    )


def batch_norm(layer: Any, shape: Shape) -> dict[str, Any]:
    """Fit the number of channels of a batch norm or an instance norm."""
    channels = shape[1] if len(shape) > 1 else shape[0]
    return {} if channels == layer.num_features else {"num_features": channels}


def layer_norm(layer: Any, shape: Shape) -> dict[str, Any]:
    """Fit the normalized shape to as many last dimensions as the layer normalizes."""
    last = shape[len(shape) - len(layer.normalized_shape) :]
    return {} if last == tuple(layer.normalized_shape) else {"normalized_shape": last}


def group_norm(layer: Any, shape: Shape) -> dict[str, Any]:
    """Fit the number of channels, if the layer's groups divide it."""
    if shape[1] == layer.num_channels:
        return {}
    if shape[1] % layer.num_groups == 0:
        return {"num_channels": shape[1]}
    raise Ambiguous(
        f"{shape[1]} channels come in, and its {layer.num_groups} groups do not divide them:"
        f" num_groups may be {_divisors(shape[1])}"
    )


def linear(layer: Any, shape: Shape) -> dict[str, Any]:
    """Fit the number of input features to the last dimension."""
    return {} if shape[-1] == layer.in_features else {"in_features": shape[-1]}


def recurrent(layer: Any, shape: Shape) -> dict[str, Any]:
    """Fit the input size to the last dimension."""
    return {} if shape[-1] == layer.input_size else {"input_size": shape[-1]}


def prelu(layer: Any, shape: Shape) -> dict[str, Any]:
    """Fit the number of parameters: one for each channel, or one for all channels."""
    fits = layer.num_parameters in {1, shape[1] if len(shape) > 1 else 1}
    return {} if fits else {"num_parameters": shape[1]}


def attention(
    layer: Any, query: Shape, key: Shape | None = None, value: Shape | None = None
) -> dict[str, Any]:
    """Fit the widths of query, key and value; the output is as wide as the query."""
    key, value = key or query, value or key or query
    now = {"embed_dim": query[-1], "kdim": key[-1], "vdim": value[-1]}
    if now == {each: getattr(layer, each) for each in now}:
        return {}
    if query[-1] % layer.num_heads == 0:
        return now
    raise Ambiguous(
        f"the query is {query[-1]} wide, and its {layer.num_heads} heads do not divide that:"
        f" num_heads may be {_divisors(query[-1])}"
    )


#: The rule of each class of layers. Subclasses have none, since their constructors may differ.
RULES: dict[type[nn.Module], Callable[..., dict[str, Any]]] = {
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), convolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), convolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), batch_norm),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), batch_norm),
    **dict.fromkeys((nn.RNN, nn.GRU, nn.LSTM), recurrent),
    nn.LayerNorm: layer_norm,
    nn.GroupNorm: group_norm,
    nn.Linear: linear,
    nn.PReLU: prelu,
    nn.MultiheadAttention: attention,
}


def _channels(layer: Any, shape: Shape, dimensions: int) -> int:
    if len(shape) not in {dimensions + 1, dimensions + 2}:
        raise Ambiguous(f"it is given {len(shape)} dimensions: {shape}")
    return shape[-dimensions - 1]


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
