"""The families of operators that a training step calls.

The calls are a fingerprint of a model, and do not depend on how busy the machine is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from torch.autograd.profiler import profile

_T = TypeVar("_T")

#: An operator belongs to the first family whose pattern is found in its name.
FAMILIES = {
    "recurrent": r"lstm|gru|rnn",
    "convolution": r"conv",
    "matmul": r"mm$|mm_|matmul|linear|einsum|attention|::dot$|::mv$",
    "reduction": r"sum|mean|softmax|norm|pool|loss|::(arg|a)?(max|min)$|::(var|std|prod|all|any)$",
    "memory": r"copy|clone|contiguous|empty|zero|ones|fill|::cat$|stack|index|gather|scatter"
    r"|embedding|resize|view|reshape|permute|::t$|transpose|slice|select|expand|strided|::to$|detach|narrow"
    r"|squeeze|::pad|split|unbind|flatten|item|local_scalar",
    "elementwise": r"add|mul|div|sub|neg|relu|elu|sigmoid|tanh|threshold|exp|log|pow|sqrt|clamp"
    r"|dropout|bernoulli|where|lerp|foreach|fused|::(eq|ne|gt|ge|lt|le|abs|sin|cos|silu)$",
}
_PATTERNS = {family: re.compile(pattern) for family, pattern in FAMILIES.items()}


def family(operator: str) -> str:
    """Return the family of an operator such as ``aten::addmm``; ``other`` if no pattern fits."""
    # The events that autograd, the optimiser and Python add have other prefixes.
    if not operator.startswith(("aten::", "torch::", "mkldnn")):
        return "other"
    return next((name for name, pattern in _PATTERNS.items() if pattern.search(operator)), "other")


def operator_calls(step: Callable[[], _T]) -> tuple[dict[str, int], _T]:
    """Run ``step`` once under torch's profiler; return the calls by family, and the step's value.

    Operators that other operators call count, too. The results of the step do not change.
    docs/profiling.md gives the cost.
    """
    # torch.profiler would wrap this profiler in a schedule, and its first start takes seconds.
    with profile(acc_events=True) as profiler:
        value = step()
    calls = dict.fromkeys((*FAMILIES, "other"), 0)
    for event in profiler.key_averages():
        calls[family(event.key)] += event.count
    return calls, value
