"""Memory that CPU kernels allocate and free internally, unseen by a trace of tensors.

Theory of operation. oneDNN's convolutions and recurrent layers reorder their inputs into layouts of
their own, and recurrent layers keep a workspace for the backward pass. Other operators run many
kernels (a transformer's layer in evaluation), or keep more memory than their result needs (the mean
squared error). No public formula gives these sizes, and an operator on fake tensors allocates none
of this memory. So the sizes are measured: the operator is run on zeros of the same shapes under
torch's profiler, which records each allocation. The size is an affine function of the first
dimension (examples, or steps of a sequence) from the length on at which the library uses its kernel
for large inputs. So for a large input, two smaller parts are run and the size is extrapolated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from .allocator import peak_bytes

if TYPE_CHECKING:
    from torch import Tensor

_aten = torch.ops.aten
RECURRENT = _aten.mkldnn_rnn_layer.default
#: The mean squared error, whose result, a single number, keeps the memory of all squares.
SQUARES = _aten.mse_loss.default
RECURRENT_BACKWARD = _aten.mkldnn_rnn_layer_backward.default
#: For each operator, the arguments whose first dimension is cut to run it on a part.
_SCALING = {
    RECURRENT: (0,),
    SQUARES: (0, 1),
    _aten._transformer_encoder_layer_fwd.default: (0,),
    _aten.convolution.default: (0,),
    _aten.convolution_backward.default: (0, 1),
}
HIDING = frozenset({*_SCALING, RECURRENT_BACKWARD})
#: The most elements of an argument or a result; for larger ones only parts are run.
LARGEST = 1 << 22
#: A tensor without its bytes: shape, dtype, and True if it is channels last.
_Blank = tuple[tuple[int, ...], torch.dtype, bool]


def hidden(func: Any, args: Sequence[Any], made: Any) -> tuple[int, int]:
    """Return the bytes that ``func`` keeps unseen with its result, and those that it frees again.

    ``args`` and the result ``made`` are fake. Both numbers are 0 if ``func`` cannot be run on
    parts.
    """
    n = args[0].shape[0] if args[0].dim() else 1
    tensors = [each for each in tree_leaves((args, made)) if isinstance(each, torch.Tensor)]
    most = max(2, LARGEST * n // max(1, *(each.numel() for each in tensors)))
    low, high = parts = (most // 2, most) if n > most else (n, n)
    try:
        with _disable_current_modes():
            grad = torch.is_grad_enabled()
            sizes = [_run(func, _blanks(func, args, part), grad) for part in parts]
    except RuntimeError:  # for example a mask, whose dimension of examples is not cut
        return 0, 0
    if low == high:
        return sizes[0]
    kept_bytes, freed = (
        small + (two - small) * (n - low) // (high - low) for small, two in zip(*sizes, strict=True)
    )
    return kept_bytes, max(0, freed)


def _profiled(call: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of ``call``, and its peak bytes minus the bytes that remain afterwards."""
    with profile(profile_memory=True) as profiler:
        output = call()
    sizes = sorted(allocations(profiler))
    return output, peak_bytes(sizes) - sum(size for _, size in sizes)


def allocations(seen: profile) -> Iterator[tuple[int, int]]:
    """Yield the time and the bytes (negative if freed) of each allocation in ``seen``."""
    assert seen.kineto_results is not None
    events: list[Any] = list(seen.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        fields: Any = event.extra_fields  # of another class for each kind of event
        if event.tag == _EventType.Allocation:
            yield event.start_time_ns, fields.alloc_size


def _blanks(func: Any, args: Sequence[Any], part: int) -> tuple[Any, ...]:
    specs: list[Any] = []
    for i, each in enumerate(args):
        if isinstance(each, torch.Tensor):
            shape = tuple(each.shape)
            if i in _SCALING[func]:
                shape = (part, *shape[1:])
            last = each.dim() == 4 and each.is_contiguous(memory_format=torch.channels_last)
            specs.append((shape, each.dtype, last and not each.is_contiguous()))
        else:
            specs.append(tuple(each) if isinstance(each, list) else each)
    return tuple(specs)


@lru_cache(maxsize=512)
def _run(func: Any, blanks: tuple[Any, ...], grad: bool) -> tuple[int, int]:
    """Return the same as ``hidden`` by running the operator.

    ``grad`` is True if gradients are enabled now; it is needed for the cache only.
    """
    args = [_zeros(each) if _is_blank(each) else each for each in blanks]
    outputs, freed = _profiled(lambda: func(*args))
    # The last output of a recurrent layer is its workspace, which is empty except in training.
    space = outputs[-1] if func is RECURRENT else outputs if func is SQUARES else None
    return (0 if space is None else space.untyped_storage().nbytes()), freed


def _is_blank(each: Any) -> bool:
    return isinstance(each, tuple) and len(each) == 3 and isinstance(each[1], torch.dtype)


def _zeros(blank: _Blank) -> Tensor:
    shape, dtype, channels_last = blank
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype, memory_format=layout).zero_()
