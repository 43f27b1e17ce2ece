"""What stays in a trainer's memory between segments: trials in training, and their shared data.

A trial that is evicted loses only time: it comes back from its checkpoint or by replay.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from torch.utils.data import Dataset

from ...profiling.base.errors import TrialFailed
from ...profiling.devices.cgroups import available_memory, usable_cores, usable_memory
from ..checkpoints.state import state_bytes
from ..contracts.contract import Data, TorchTrainable
from ..contracts.pieces import Pieces
from ..system.system import device_threads
from ..training.data import in_memory, materialise
from ..training.training import Training

_ABSENT = object()


class TrackedParams(Mapping[str, Any]):
    """A trial's parameters from its start, which record the names that were read.

    Reading a later piece raises ``TrialFailed`` (inexact).
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.pieces = Pieces(params)
        self._params = MappingProxyType(self.pieces.start)
        self.read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._params:
            self.pieces.refuse(name)
        # A missing name counts as read too: for another trial it may exist.
        self.read[name] = self._params.get(name, _ABSENT)
        return self._params[name]

    def __iter__(self) -> Iterator[str]:
        self.read.update(self._params)
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    def __repr__(self) -> str:
        return repr(dict(self._params))

    def agree_with(self, read: Mapping[str, Any]) -> bool:
        """Whether reading the names of ``read`` here would return the same values."""
        here = {name: self._params.get(name, _ABSENT) for name in read}
        return all(type(here[n]) is type(value) and here[n] == value for n, value in read.items())


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Data, its maker, the parameters that were read, and what else ``data()`` left behind."""

    maker: type[TorchTrainable]
    read: dict[str, Any]
    data: Data
    left: dict[str, Any]


class SharedData:
    """Data sets by the class that made them and the parameters that it read to make them.

    Only the few most recently used are kept here. A warm trial keeps its own.
    """

    def __init__(self, keep: int = 4) -> None:
        self._keep = keep
        self._known: list[_Loaded] = []
        #: Data sets, so that none gets another's ``id``, and their first examples.
        self._examples: dict[int, tuple[Dataset[Any], Any]] = {}

    def of(self, code: TorchTrainable, reads: TrackedParams) -> Data:
        """``code.data()``, or what an earlier trial got that would have read the same.

        Attributes that ``data()`` sets (a number of classes, say) are set on every trial's object.
        """
        for known in self._known:
            if known.maker is type(code) and reads.agree_with(known.read):
                self._known.remove(known)
                self._known.append(known)
                vars(code).update(known.left)
                return known.data
        before = dict(vars(code))
        made = code.data()
        if not isinstance(made, Data):
            kind = type(made).__name__
            raise TrialFailed("data", f"data() must return a penstock.Data, not {kind}")
        data = Data(
            materialise(made.train, "training"),
            materialise(made.validation, "validation"),
            None if made.test is None else materialise(made.test, "test"),
        )
        left = {n: v for n, v in vars(code).items() if before.get(n, _ABSENT) is not v}
        loaded = _Loaded(type(code), dict(reads.read), data, left)
        self._known = [*self._known, loaded][-self._keep :]
        return data

    def first_examples(self) -> dict[int, Any]:
        """The first example of each set that is read one by one, by the set's ``id``.

        Each is read once. One that cannot be read is left out.
        """
        sets = [each for known in self._known for each in (known.data.train, known.data.validation)]
        found = {}
        for each in sets:
            if in_memory(each) is None:
                with suppress(Exception):
                    found[id(each)] = self._examples.get(id(each)) or (each, each[0])
        self._examples = found
        return {name: example for name, (_, example) in found.items()}


@dataclass
class WarmTrial:
    """A trial in memory, whole after epoch ``training.epoch`` with ``state_hash``."""

    training: Training
    #: The numeric signature under which this machine computes it.
    signature: str
    state_hash: str = ""
    #: The machine parts of other members' signatures, where they differ from this machine's.
    beside: str = ""
    #: Whether its memory was measured here.
    measured: bool = False
    #: Why it is not trained together with others, as was said of it; empty if nothing was.
    apart: str = ""

    @cached_property
    def bytes(self) -> int:
        """The size of model and optimiser, which has all its state after the first epoch."""
        return state_bytes(self.training.state())


class WarmTrials:
    """The trials in memory, least recently used first; those go when ``capacity`` is exceeded.

    They belong to the trainer's main thread, which lends them to threads that serve peers.
    """

    def __init__(self, capacity: Callable[[int], int]) -> None:
        """``capacity`` gives the bytes of model and optimiser state that may be held.

        It is told how many are held.
        """
        self._capacity = capacity
        self._trials: OrderedDict[str, WarmTrial] = OrderedDict()
        self._lent: Counter[str] = Counter()
        self._changed = threading.Condition()

    def __contains__(self, trial: str) -> bool:
        return trial in self._trials

    def get(self, trial: str) -> WarmTrial | None:
        """Return the trial without taking it out. It may be read, but not trained."""
        return self._trials.get(trial)

    def take(self, trial: str) -> WarmTrial | None:
        """Take out the trial, once nobody reads it: during training it is not whole."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lent[trial])
            return self._trials.pop(trial, None)

    @contextmanager
    def lend(self, name: str, epoch: int) -> Iterator[dict[str, Any] | None]:
        """The state called ``name`` (``state_name``) after ``epoch``, unchanged inside; or None.

        Another trial whose state has the same hash has it, too.
        """
        trial, _, state_hash = name.partition("/")

        def fits(warm: WarmTrial) -> bool:
            return warm.training.epoch == epoch and state_hash in ("", warm.state_hash)

        with self._changed:
            warm = self._trials.get(trial)
            if (warm is None or not fits(warm)) and state_hash:
                others = self._trials.items()
                trial, warm = next((each for each in others if fits(each[1])), (trial, None))
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
        """Keep a whole trial as the most recent one. Returns the names of evicted trials."""
        with self._changed:
            return self._put(trial, warm)

    def _put(self, trial: str, warm: WarmTrial) -> list[str]:
        self._trials[trial] = warm
        self._trials.move_to_end(trial)
        if len(self._trials) == 1:
            return []
        held = sum(warm.bytes for warm in self._trials.values())
        capacity = self._capacity(held)
        gone = []
        while len(self._trials) > 1 and held > capacity:
            name, evicted = self._trials.popitem(last=False)
            held -= evicted.bytes
            gone.append(name)
        return gone

    def keep_only(self, trial: str) -> list[str]:
        """Drop all others. Returns their names."""
        with self._changed:
            gone = [name for name in self._trials if name != trial]
            for name in gone:
                del self._trials[name]
            return gone

    def drop(self, trial: str) -> None:
        with self._changed:
            self._trials.pop(trial, None)


def state_name(trial: str, state_hash: str = "") -> str:
    """The name of a trial's state among peers: the one with this hash, or any of an epoch."""
    return f"{trial}/{state_hash}"


def warm_capacity(held: int = 0) -> int:
    """Bytes that warm trials may hold, of which they hold ``held`` now.

    That is a quarter of this slot's share of the device, or of what others leave of it. On a CPU
    the device is what the container or control group leaves, shared among its cores.
    """
    threads = device_threads()
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        slots = max(1, len(os.sched_getaffinity(0)) // threads)
        return min(total // slots, free + cached + held) // 4
    every = len(usable_cores(range(os.cpu_count() or 1)))
    share = int((usable_memory() or 0) * min(1.0, threads / every))
    available = available_memory()
    return (share if available is None else min(share, available + held)) // 4
