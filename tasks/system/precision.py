"""bfloat16: the context of a trial in it, what stays in float32, and which devices have it.

Theory of operation. Under torch's autocast products and convolutions are computed in bfloat16;
parameters, gradients of parameters and optimisers stay in float32, and so do the losses of
``torch.nn.functional``. On a GPU so does all that losses are made of by hand (sums, powers,
logarithms, softmax); on a CPU torch leaves these in bfloat16, and sums the gradients of LayerNorm's
weights in it, too. So here a CPU's autocast gets what a GPU's has: kernels of ours, which torch
calls under autocast only, and which change nothing but in this context.

Autocast keeps no cast weights. Its cache is one for all threads, so that trials in turns would
clear each other's; and the gradients of a weight that is used twice would be added in bfloat16.
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

#: oneDNN's instruction sets that multiply numbers of bfloat16, of ARM and of x86. With
#: ``AVX2_VNNI_2`` it only converts them.
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
#: Operators that a CPU's autocast leaves alone. A GPU's casts all of these but the mean of all.
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
    """The state of a thread: as autocast's own, it is not another's."""

    #: True if it computes in this context.
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
    """Say whether this thread's trial computes in bfloat16.

    A checkpoint of torch's, which computes a part of the network again in the backward pass, enters
    autocast itself then, and is outside of the context.
    """
    _thread.inside = bf16


@contextmanager
def expected() -> Iterator[None]:
    """Expect nothing (``expect``) of this thread's code after it, whatever was expected within."""
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
        # Other versions of torch have their own kernels for some.
        if overloaded is not None and not overloaded.has_kernel_for_dispatch_key(_KEY):
            operators.impl(name, partial(_in_fp32, overloaded), "AutocastCPU")
    return operators


def _in_fp32(operator: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call the operator with tensors of float32 in place of bfloat16."""
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

    Elsewhere it is emulated: the results are right, and slower than float32's, on a processor
    without AVX-512 50 times. A limit that the environment sets to oneDNN counts.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and instruction_set() in _NATIVE
