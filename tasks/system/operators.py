"""Which families of operators a training step calls, and in which it spends its time.

Both are fingerprints of a model. The calls do not depend on how busy the machine is. The times
are the self times of torch's profiler: those of an operator without the operators that it calls.
On a CPU they are wall-clock time, so on a busy machine several steps say more than one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import torch
from torch.autograd.profiler import profile

_Made = TypeVar("_Made")

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
    """The family of an operator by its name, such as ``aten::addmm``; ``other`` if none fits."""
    # What autograd, the optimiser and Python add around operators has other prefixes.
    if not operator.startswith(("aten::", "torch::", "mkldnn")):
        return "other"
    return next((name for name, found in _PATTERNS.items() if found.search(operator)), "other")


def operator_mix(step: Callable[[], None]) -> dict[str, float]:
    """Run ``step`` once under torch's profiler: shares of time by family, which add up to 1.

    On a GPU the times are those of kernels, by the operator that launched them (not tried on a
    live one). docs/profiling.md gives the cost. The results of the step do not change. All shares
    are 0 for a step that runs no operator.
    """
    cuda = torch.cuda.is_available()
    # Not torch.profiler: it wraps this one in a schedule, and its first start takes seconds.
    with profile(use_device="cuda" if cuda else None) as seen:
        step()
        if cuda:
            torch.cuda.synchronize()
    shares = dict.fromkeys((*FAMILIES, "other"), 0.0)
    for event in seen.key_averages():
        if event.device_type.name == "CPU":
            spent = event.self_device_time_total if cuda else event.self_cpu_time_total
            shares[family(event.key)] += spent
    whole = sum(shares.values())
    return {name: spent / whole for name, spent in shares.items()} if whole else shares


def operator_calls(step: Callable[[], _Made]) -> tuple[dict[str, int], _Made]:
    """Run ``step`` once under torch's profiler: calls by family, and what ``step`` returned.

    Operators called by other operators count too. The cost is that of ``operator_mix``.
    """
    with profile(acc_events=True) as seen:
        made = step()
    calls = dict.fromkeys((*FAMILIES, "other"), 0)
    for event in seen.key_averages():
        calls[family(event.key)] += event.count
    return calls, made
