"""Affinity: the thread that trains stays on one core of its slot while it takes steps.

A thread that the system moves from core to core finds cold caches there. Bound only while steps are
taken: threads that are started in between (checkpoints, neighbours) would stay on that core, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...profiling.base.errors import TrialFailed

#: Elements of a tensor that torch adds to with all of its threads.
_ALL_THREADS = 1 << 18
#: The cores of the thread that trains while it is bound to one of them.
_bound: list[frozenset[int]] = []


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Bind the calling thread to its first core; the pool of torch's ``threads`` stays free.

    Raises ``TrialFailed`` (system) as ``own_cores`` does, and where the system refuses.
    """
    free = own_cores(threads)
    torch.zeros(_ALL_THREADS).add_(1)  # the pool begins with the cores of who starts it
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
    """The cores that this process may use, also while the thread that asks is bound to one."""
    return _bound[-1] if _bound else frozenset(os.sched_getaffinity(0))


def own_cores(threads: int) -> frozenset[int]:
    """The cores of a slot that has so many ``threads``.

    Raises ``TrialFailed`` (system) where the process may use others, too: those of another slot.
    """
    free = cores()
    if len(free) != threads:
        why = f"the slot has {threads} of the {len(free)} cores that its trainer may use"
        raise TrialFailed("system", f"no core is the trial's own: {why}")
    return free


def use(free: frozenset[int], _worker: int) -> None:
    """Have a loader worker, which begins with the core of who starts it, use ``free`` ones."""
    os.sched_setaffinity(0, free)
