"""Affinity: the training thread stays on one core of its slot during training steps.

A thread that the system moves between cores finds cold caches. The thread is bound only during
steps: threads started in between (by checkpoints and peers) would inherit the binding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...base.errors import TrialFailed

#: Elements of a tensor that is large enough for torch to use all of its threads.
_ALL_THREADS = 1 << 18
#: The cores of the training thread while it is bound to one of them; empty otherwise.
_bound: list[frozenset[int]] = []


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Bind the calling thread to its first core; torch's other threads may use all cores.

    Raises ``TrialFailed`` (system) if the process may also use cores outside the slot, which has
    ``threads`` of them, or if the system refuses.
    """
    free = cores()
    if len(free) != threads:
        why = f"the slot has {threads} of the {len(free)} cores that its trainer may use"
        raise TrialFailed("system", f"the trial has no core of its own: {why}")
    torch.zeros(_ALL_THREADS).add_(1)  # the pool inherits the cores of the thread that starts it
    try:
        os.sched_setaffinity(0, {min(free)})
    except OSError as error:
        raise TrialFailed("system", f"it cannot be bound to a core: {error}") from error
    _bound.append(free)
    try:
        yield
    finally:
        _bound.clear()
        os.sched_setaffinity(0, free)


def cores() -> frozenset[int]:
    """Return the cores that this process may use, also while the calling thread is bound to one."""
    return _bound[-1] if _bound else frozenset(os.sched_getaffinity(0))


def use(free: frozenset[int], _worker: int) -> None:
    """Let a data loader's worker use the ``free`` cores; it inherits its parent's single core."""
    os.sched_setaffinity(0, free)
