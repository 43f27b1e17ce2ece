"""Copies of trials' states at epochs from which other trials continue in other ways."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from ..checkpoints.state import copy_on_device, state_bytes


class _Copy(NamedTuple):
    study: str
    epoch: int
    state: dict[str, Any]
    bytes: int


class StateCopies:
    """Copies of states by hash, dropped with their study, or as the oldest beyond ``capacity``.

    A trial whose copy was dropped loads the state from a store, or computes it again.
    """

    def __init__(self, capacity: Callable[[int], int]) -> None:
        """Keep as many bytes as ``capacity`` returns, given the bytes kept now."""
        self._capacity = capacity
        self._copies: OrderedDict[str, _Copy] = OrderedDict()
        self._changing = threading.Lock()

    def keep(self, study: str, state_hash: str, epoch: int, state: dict[str, Any]) -> None:
        """Keep a copy, on its device, of the state after ``epoch`` of a trial of ``study``."""
        copied = copy_on_device(state)
        with self._changing:
            self._copies[state_hash] = _Copy(study, epoch, copied, state_bytes(copied))
            used_bytes = sum(each.bytes for each in self._copies.values())
            while self._copies and used_bytes > self._capacity(used_bytes):
                _, evicted = self._copies.popitem(last=False)
                used_bytes -= evicted.bytes

    def find(self, state_hash: str, epoch: int) -> dict[str, Any] | None:
        """Return the state with this hash after ``epoch``. It must not be changed."""
        with self._changing:
            copy = self._copies.get(state_hash)
        return copy.state if copy is not None and copy.epoch == epoch else None

    def drop(self, study: str) -> None:
        """Drop all copies of the study's states."""
        with self._changing:
            for state_hash in [name for name, each in self._copies.items() if each.study == study]:
                del self._copies[state_hash]
