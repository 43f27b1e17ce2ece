"""bfloat16: the context that computes a trial in it, and the devices that support it.

Theory of operation. Under torch's autocast, matrix products and convolutions are computed in
bfloat16. Parameters, gradients of parameters and optimisers stay in float32, and so do the losses
of ``torch.nn.functional``. On a GPU the operators from which users build losses (sums, powers,
logarithms, softmax) stay in float32, too. On a CPU torch leaves these in bfloat16, and also sums
the gradients of LayerNorm's weights in it. So this module gives a CPU's autocast the behaviour of a
GPU's: it adds kernels which torch calls under autocast only, and which change nothing outside of
this context.

Autocast keeps no cast weights. Its cache is shared by all threads, so trials that take turns would
clear each other's cached weights. Also, the gradients of a weight that is used twice would be added
in bfloat16.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, library

from .onednn import instruction_set

#: oneDNN's instruction sets, of ARM and x86, that multiply bfloat16 numbers. ``AVX2_VNNI_2`` only
#: converts them.
_NATIVE = frozenset(
    (
        "ASIMD_BF16",
        "AVX512_CORE_BF16",
        "AVX512_CORE_FP16",
        "AVX512_CORE_AMX",
        "AVX512_CORE_AMX_FP16",
    )
)
_KEY = torch._C.DispatchKey.AutocastCPU
#: Operators that a CPU's autocast leaves alone. A GPU's autocast casts all of these but ``mean``.
_OPERATORS = (
    *("layer_norm", "rms_norm"),
    *("softmax.int", "log_softmax.int", "logsumexp", "softplus"),
    *("mean", "sum", "sum.dim_IntList", "cumsum", "cumprod"),
    *("exp", "expm1", "log", "log1p", "log2", "log10", "reciprocal", "rsqrt"),
    *("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"),
    *("cosine_similarity", "pairwise_distance", "dist", "linalg_vector_norm"),
    *("norm.Scalar", "norm.ScalarOpt_dim"),
)


class _Thread(threading.local):
    """The state of a thread: like autocast's own state, it is not shared by threads."""

    #: True if the thread computes in this context.
    inside = False


_thread = _Thread()


class Bfloat16(torch.autocast):
    """The context in which a trial's code computes in bfloat16. It may be entered repeatedly."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device.type, dtype=torch.bfloat16, cache_enabled=False)
        if device.type == "cpu":
            _install()

    def __enter__(self) -> Any:
        self._before, _thread.inside = _thread.inside, True
        return super().__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def __exit__(self, *raised: Any) -> Any:
        _thread.inside = self._before
        return super().__exit__(*raised)


def expect(*, bf16: bool) -> None:
    """Set whether this thread's trial computes in bfloat16.

    torch's activation checkpoints compute a part of the network again in the backward pass. They
    then enter autocast themselves, outside of the context.
    """
    _thread.inside = bf16


@contextmanager
def expected() -> Iterator[None]:
    """Reset ``expect`` to False for this thread at the end of the context."""
    try:
        yield
    finally:
        expect(bf16=False)


@cache
def _install() -> Any:
    """Add the kernels, for as long as the process lives."""
    operators: Any = library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name in _OPERATORS:
        operator, _, overload = name.partition(".")
        overloaded = getattr(getattr(torch.ops.aten, operator, None), overload or "default", None)
        # Other versions of torch have kernels of their own for some of these operators.
        if overloaded is not None and not overloaded.has_kernel_for_dispatch_key(_KEY):
            operators.impl(name, partial(_in_fp32, overloaded), "AutocastCPU")
    return operators


def _in_fp32(operator: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call the operator; in this module's context, with tensors of float32 in place of bfloat16."""
    torch.set_autocast_enabled("cpu", False)
    try:
        if not _thread.inside:
            return operator(*args, **named)
        return operator(
            *(_wide(each) for each in args), **{name: _wide(each) for name, each in named.items()}
        )
    finally:
        torch.set_autocast_enabled("cpu", True)


def _wide(value: Any) -> Any:
    narrow = isinstance(value, Tensor) and value.dtype == torch.bfloat16
    return value.float() if narrow else value


def native_bf16(device: torch.device) -> bool:
    """Return True if ``device`` multiplies bfloat16 numbers without converting them first.

    Elsewhere bfloat16 is emulated: the results are right, but slower than float32's, by a factor of
    50 on a processor without AVX-512. A limit that the environment sets on oneDNN counts.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and instruction_set() in _NATIVE
