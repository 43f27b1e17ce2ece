"""Lists of operators that give each trial the same bits as alone, by how they are computed.

Theory of operation. An operator that is not listed here and has no rule is refused by name, because
equal bits in a few steps prove nothing. tests/extensions/fusion/test_fused_operators.py goes
through these lists.

- ``READ``: properties of a tensor that are the same for all trials.
- ``MOVED``: copies and views. No number is computed, forward or backward; gradients are only
  written into zeros.
- ``EXACT``: each element is rounded once, so all kernels agree. If a gradient would have to be
  summed over a broadcast dimension, the operator is looped.
- ``ELEMENTWISE`` and ``LAST_DIMENSION``: see ``vectorised``.
- ``LOOPED``: the kernels for a trial alone, called for one trial after the other.
- ``SEEN``: while a ``TorchDispatchMode`` sees the operators, torch avoids computations that depend
  on values, and computes the gradients of these operators in another way, with other bits.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor


def _of(owner: Any, names: str) -> tuple[Any, ...]:
    return tuple(getattr(owner, name) for name in names.split())


_READ = "shape dtype device ndim layout is_nested is_sparse is_quantized"

READ: frozenset[Any] = frozenset(
    (
        *(getattr(Tensor, name).__get__ for name in _READ.split()),
        *_of(Tensor, "size dim numel __len__ is_floating_point is_complex"),
        *_of(torch, "is_floating_point is_complex numel is_tensor"),
    )
)

MOVED: frozenset[Any] = frozenset(
    (
        *(getattr(Tensor, name).__get__ for name in ("T", "mT")),
        *_of(Tensor, "view reshape flatten transpose permute t squeeze unsqueeze"),
        *_of(Tensor, "chunk split unbind narrow select contiguous detach clone movedim"),
        *_of(Tensor, "float double long int bool to type_as view_as flip"),
        *_of(torch, "reshape flatten transpose permute squeeze unsqueeze chunk split unbind"),
        *_of(torch, "narrow select clone movedim cat concat stack flip"),
        *_of(torch, "zeros_like ones_like full_like"),
        F.pad,
    )
)

_ARITHMETIC = "add sub mul div true_divide neg abs maximum minimum sign"
_COMPARED = "eq ne lt le gt ge logical_and logical_or logical_not isnan isfinite"
_BITS = "__and__ __or__ __xor__ __invert__"

EXACT: frozenset[Any] = frozenset(
    (
        *_of(Tensor, f"{_ARITHMETIC} {_COMPARED} {_BITS} __eq__ __ne__ __rsub__"),
        *_of(Tensor, "relu clamp clip where masked_fill floor ceil round"),
        *_of(torch, f"{_ARITHMETIC} {_COMPARED} relu clamp clip where floor ceil round"),
        *_of(F, "relu relu6 leaky_relu hardtanh threshold"),
        *_of(Tensor, "add_ sub_ mul_ div_ neg_ relu_ zero_"),
        *_of(torch, "relu_"),
    )
)

_FUNCTIONS = "exp expm1 log log1p log2 log10 sqrt rsqrt reciprocal square sigmoid tanh sin cos erf"

ELEMENTWISE: frozenset[Any] = frozenset(
    (
        *_of(Tensor, f"{_FUNCTIONS} pow __rpow__ __rdiv__"),
        *_of(torch, f"{_FUNCTIONS} pow"),
        *_of(F, "sigmoid tanh gelu silu elu selu celu softplus logsigmoid mish"),
        *_of(F, "hardswish hardsigmoid softsign tanhshrink"),
    )
)

LAST_DIMENSION: frozenset[Any] = frozenset(
    (
        *_of(F, "softmax log_softmax"),
        *_of(torch, "softmax log_softmax argmax argmin"),
        *_of(Tensor, "softmax log_softmax argmax argmin"),
    )
)

_PRODUCTS = "matmul mm bmm addmm baddbmm addcmul addcdiv lerp"
_REDUCTIONS = "sum mean var std norm prod amax amin max min logsumexp all any cumsum cumprod median"
_PICKED = "gather index_select take_along_dim broadcast_to"

LOOPED: frozenset[Any] = frozenset(
    (
        *_of(F, "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"),
        *_of(F, "batch_norm layer_norm group_norm instance_norm rms_norm bilinear embedding"),
        *_of(F, "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d"),
        *_of(F, "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d"),
        *_of(F, "adaptive_max_pool2d interpolate unfold fold prelu one_hot"),
        *_of(F, "mse_loss l1_loss smooth_l1_loss huber_loss kl_div"),
        *_of(F, "binary_cross_entropy binary_cross_entropy_with_logits"),
        *_of(F, "scaled_dot_product_attention multi_head_attention_forward"),
        *_of(torch, f"{_PRODUCTS} {_REDUCTIONS} {_PICKED} einsum outer dot mv"),
        *_of(torch, "conv1d conv2d layer_norm logaddexp atan2"),
        *_of(Tensor, f"{_PRODUCTS} {_REDUCTIONS} {_PICKED} __matmul__ outer dot mv"),
        *_of(Tensor, "expand expand_as repeat __getitem__ __rmatmul__"),
    )
)

SEEN: frozenset[Any] = frozenset(
    (
        *_of(Tensor, "prod masked_fill max min median"),
        *_of(torch, "prod max min median"),
    )
)
