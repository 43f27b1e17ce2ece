"""Operators on a GPU that compute all trials at once if the bits were found to be equal.

Theory of operation. A library chooses its kernels by shapes, and each kernel sums in its own order.
The kernel for a stack is not known in advance. So the first time that a process sees some shapes,
it computes all trials at once and one by one, and compares the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from torch import Tensor

from ....tasks.system.tensor_bytes import same_bits

_FOUND: dict[Hashable, bool] = {}


def batched(
    name: str, stacks: tuple[Tensor, ...], at_once: Callable[[], Tensor], each: Callable[[], Tensor]
) -> Tensor:
    """Return ``at_once()`` if its bits equal ``each()``'s for such ``stacks``, else ``each()``."""
    kind = (name, *((s.dtype, s.shape, s.stride(), s.device) for s in stacks))
    if kind not in _FOUND:
        output = each()
        same = same_bits(at_once(), output)
        if not same or bool(output.any()):  # equal zeros would prove nothing
            _FOUND[kind] = same
        return output
    return at_once() if _FOUND[kind] else each()
