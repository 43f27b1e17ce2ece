"""An object of the user's class that replaces all trials' objects in ``loss`` and ``metrics``.

Theory of operation. The code must not silently read one trial's values from ``self``. So each read
of a hyperparameter, of ``now`` or of an attribute gives the value that all trials have in common.
If the trials' values differ, the read raises an error that names the value, and trials that differ
in that value are not fused any more. Attributes cannot be set. A value that is changed in place is
noticed at the end of an epoch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from ...tasks.contracts.contract import TorchTrainable
from .operators.not_fused import NotFused
from .structure import Read, frozen, value_of


class Differs(NotFused):
    """Raised if trials have different values of something that their code reads."""

    def __init__(self, read: Read) -> None:
        super().__init__(f"its code reads {read[1]!r}, which others have another value of")
        self.read = read


@dataclass(frozen=True, slots=True)
class Reads:
    """Values that code has read: each object's attribute names, and the keys of the values."""

    names: list[set[str]]
    values: dict[Read, Hashable]


class Common:
    """The values that objects of one class have in common."""

    def __init__(self, codes: Sequence[TorchTrainable]) -> None:
        self._codes = codes
        self._known: dict[Read, Any] = {}
        self._keys: dict[Read, Hashable] = {}

    def has(self, name: str) -> bool:
        """Return True if ``name`` is an instance attribute of any of the objects."""
        return any(name in vars(code) for code in self._codes)

    def names(self) -> list[str]:
        """Return the names of all hyperparameters; raise ``NotFused`` if they differ by object."""
        names = [list(code.params) for code in self._codes]
        if any(each != names[0] for each in names):
            raise NotFused("its code goes through all hyperparameters, and others have more")
        return names[0]

    def value(self, read: Read) -> Any:
        """Return the value that all objects have in common, or ``NotFused`` if none has a value.

        Raises ``Differs`` if the objects' values differ, and ``NotFused`` if they have no keys.
        """
        if read not in self._known:
            values = [value_of(code, read) for code in self._codes]
            if any(value is not values[0] for value in values):
                keys = [frozen(value, f"self.{read[1]}") for value in values]
                if any(key != keys[0] for key in keys):
                    raise Differs(read)
                self._keys[read] = keys[0]
            self._known[read] = values[0]
        return self._known[read]

    def reads(self) -> Reads:
        """Return everything that was read so far. Raises ``NotFused`` if a value has no key."""
        return Reads(self._names(), {read: self._key(read) for read in self._known})

    def has_same(self, reads: Reads) -> bool:
        """Return True if these objects have the same values for everything in ``reads``."""
        try:
            same = all(self._key(read) == key for read, key in reads.values.items())
        except NotFused:
            return False
        return same and self._names() == reads.names

    def _names(self) -> list[set[str]]:
        return [set(vars(code)) for code in self._codes]

    def _key(self, read: Read) -> Hashable:
        return frozen(self.value(read), f"self.{read[1]}")

    def check_unchanged(self) -> None:
        """Raise ``NotFused`` if a value that was read has been changed in place."""
        for read, key in self._keys.items():
            if self._key(read) != key:
                raise NotFused(f"its code changes self.{read[1]}")


class _Params(Mapping[str, Any]):
    def __init__(self, common: Common) -> None:
        self._common = common

    def __getitem__(self, name: str) -> Any:
        value = self._common.value(("params", name))
        if value is NotFused:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._common.names())

    def __len__(self) -> int:
        return len(self._common.names())


def stand_in(common: Common, code: type[TorchTrainable]) -> TorchTrainable:
    """Return an object of class ``code`` that stands for all trials' objects."""
    stand_in_object: Any = object.__new__(_class_of(cast(Any, code)))
    object.__setattr__(stand_in_object, "_common", common)
    object.__setattr__(stand_in_object, "_read_params", _Params(common))
    return cast("TorchTrainable", stand_in_object)


@lru_cache(maxsize=16)
def _class_of(code: Any) -> Any:
    names = {"__module__": code.__module__, "__qualname__": code.__qualname__}
    return type(code.__name__, (code,), {**names, **_METHODS})


def _get(self: Any, name: str) -> Any:
    common: Common = object.__getattribute__(self, "_common")
    if name == "params":
        return object.__getattribute__(self, "_read_params")
    if name == "__dict__":
        raise NotFused("its code reads all attributes at once")
    if common.has(name):
        value = common.value(("attribute", name))
        if value is NotFused:
            raise AttributeError(name)
        return value
    return object.__getattribute__(self, name)


def _now(self: Any, name: str) -> Any:
    value = object.__getattribute__(self, "_common").value(("now", name))
    if value is NotFused:
        raise KeyError(name)
    return value


def _set(self: Any, name: str, *value: Any) -> None:
    raise NotFused(f"its code changes self.{name}")


_METHODS = {"__getattribute__": _get, "now": _now, "__setattr__": _set, "__delattr__": _set}
