"""Values that methods of users' classes make once for all trials that read the same parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..contracts.contract import Data, TorchTrainable
from ..contracts.pieces import Pieces

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
        """Return True if reading the names of ``read`` here would return the same values."""
        own = {name: self._params.get(name, _ABSENT) for name in read}
        return all(type(own[n]) is type(value) and own[n] == value for n, value in read.items())


@dataclass(frozen=True, slots=True)
class _Made:
    """A value, its maker, the parameters that making it read, and the attributes that it set."""

    maker: type[TorchTrainable]
    read: dict[str, Any]
    made: Any
    left: dict[str, Any]
    #: The data for which the value was made.
    of: Data | None = None


class MadeOnce:
    """Values of one method of users' classes, by the class and the parameters that it read."""

    def __init__(self, keep: int = 4) -> None:
        """Keep up to ``keep`` values; beyond that the least recently used one is dropped."""
        self._keep = keep
        self._objects: list[_Made] = []

    def __iter__(self) -> Iterator[_Made]:
        return iter(self._objects)

    def get(
        self,
        code: TorchTrainable,
        reads: TrackedParams,
        make: Callable[[], Any],
        of: Data | None = None,
    ) -> Any:
        """Return the value made for a trial with the same reads, or a new one from ``make``.

        Attributes that making the value set on the earlier trial's object are set on ``code``, too.
        A value of None is not kept. ``of`` is the data for which the value is made.
        """
        for each in self._objects:
            if each.maker is type(code) and each.of is of and reads.agree_with(each.read):
                self._objects.remove(each)
                self._objects.append(each)
                vars(code).update(each.left)
                return each.made
        before = dict(vars(code))
        value = make()
        if value is not None:
            attributes = {n: v for n, v in vars(code).items() if before.get(n, _ABSENT) is not v}
            self._objects.append(_Made(type(code), dict(reads.read), value, attributes, of))
            del self._objects[: -self._keep]
        return value
