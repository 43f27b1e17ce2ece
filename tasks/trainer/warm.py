"""Trials in training that stay in a trainer's memory between segments.

A trial that is evicted loses only time: its state is loaded from a checkpoint, or replayed.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch

from ...profiling.devices.cgroups import available_memory, usable_cores, usable_memory
from ..checkpoints.state import state_bytes
from ..system.system import device_threads
from ..training.training import Training


@dataclass
class WarmTrial:
    """A trial in memory, complete after epoch ``training.epoch`` with ``state_hash``."""

    training: Training
    #: The numeric signature under which this machine computes the trial.
    signature: str
    state_hash: str = ""
    #: The machine parts of other members' signatures, if they differ from this machine's.
    beside: str = ""
    #: Notes of hooks.
    notes: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def bytes(self) -> int:
        """The bytes of model and optimiser. They stay the same after the first epoch."""
        return state_bytes(self.training.state())


class WarmTrials:
    """The trials in memory. The least recently used are dropped when ``capacity`` is exceeded.

    The thread that runs segments takes them and puts them back; threads that serve peers only read
    them.
    """

    def __init__(self, capacity: Callable[[int], int]) -> None:
        """Keep as much model and optimiser state as ``capacity`` allows.

        ``capacity`` returns the bytes that may be kept, given the bytes kept now.
        """
        self._capacity = capacity
        self._trials: OrderedDict[str, WarmTrial] = OrderedDict()
        self._lent: Counter[str] = Counter()
        self._changed = threading.Condition()

    def __contains__(self, trial: str) -> bool:
        return trial in self._trials

    def get(self, trial: str) -> WarmTrial | None:
        """Return the trial without removing it. It may be read, but not trained."""
        return self._trials.get(trial)

    def take(self, trial: str) -> WarmTrial | None:
        """Remove and return the trial once no thread reads it: in training, it is incomplete."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lent[trial])
            return self._trials.pop(trial, None)

    @contextmanager
    def lend(self, name: str, epoch: int) -> Iterator[dict[str, Any] | None]:
        """Yield the state ``name`` (``state_name``) after ``epoch``, which does not change inside.

        It may be another trial's state with the same hash. Yield None if there is none.
        """
        trial, _, state_hash = name.partition("/")

        def fits(warm: WarmTrial) -> bool:
            return warm.training.epoch == epoch and state_hash in ("", warm.state_hash)

        with self._changed:
            warm = self._trials.get(trial)
            if (warm is None or not fits(warm)) and state_hash:
                trials = self._trials.items()
                trial, warm = next((each for each in trials if fits(each[1])), (trial, None))
            if warm is not None and not fits(warm):
                warm = None
            self._lent[trial] += 1
        try:
            yield None if warm is None else warm.training.state()
        finally:
            with self._changed:
                self._lent[trial] -= 1
                self._changed.notify_all()

    def put(self, trial: str, warm: WarmTrial) -> list[str]:
        """Keep a complete trial as the most recent one. Return the names of evicted trials."""
        with self._changed:
            return self._put(trial, warm)

    def _put(self, trial: str, warm: WarmTrial) -> list[str]:
        self._trials[trial] = warm
        self._trials.move_to_end(trial)
        if len(self._trials) == 1:
            return []
        used_bytes = sum(warm.bytes for warm in self._trials.values())
        capacity = self._capacity(used_bytes)
        names = []
        while len(self._trials) > 1 and used_bytes > capacity:
            name, evicted = self._trials.popitem(last=False)
            used_bytes -= evicted.bytes
            names.append(name)
        return names

    def keep_only(self, trial: str) -> list[str]:
        """Drop all other trials, and return their names."""
        with self._changed:
            names = [name for name in self._trials if name != trial]
            for name in names:
                del self._trials[name]
            return names

    def drop(self, trial: str) -> None:
        with self._changed:
            self._trials.pop(trial, None)


def state_name(trial: str, state_hash: str = "") -> str:
    """Return the name of a trial's state among peers: with this hash, or any if empty."""
    return f"{trial}/{state_hash}"


def warm_capacity(held: int = 0) -> int:
    """Return the bytes that warm trials may use, given the bytes ``held`` that they use now.

    They are a quarter of this slot's share of the device's memory, or of the memory that would be
    free without warm trials, whichever is less. On a CPU, the memory is that of the container or
    control group, shared among its cores.
    """
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        slots = max(1, len(os.sched_getaffinity(0)) // device_threads())
        return min(total // slots, free + cached + held) // 4
    available = available_memory()
    return (_share() if available is None else min(_share(), available + held)) // 4


@cache
def _share() -> int:
    """Return this slot's share of the memory that the container or control group may use (bytes).

    Limits are read once: that takes a millisecond, and ``available_memory`` reads what is left.
    """
    every = len(usable_cores(range(os.cpu_count() or 1)))
    return int((usable_memory() or 0) * min(1.0, device_threads() / every))
