"""How often a step of training calls operators, by families: a fingerprint that no load changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch.autograd.profiler import profile

from .operator_mix import FAMILIES, family

_Made = TypeVar("_Made")


def operator_calls(step: Callable[[], _Made]) -> tuple[dict[str, int], _Made]:
    """Run ``step`` once under torch's profiler: calls by the families of ``operator_mix``.

    Also gives what the step gave.

    Those that operators make of one another count too. Costs as much as ``operator_mix``; unlike
    its times, counts are the same however busy the machine is.
    """
    with profile(acc_events=True) as seen:
        made = step()
    calls = dict.fromkeys((*FAMILIES, "other"), 0)
    for event in seen.key_averages():
        calls[family(event.key)] += event.count
    return calls, made
