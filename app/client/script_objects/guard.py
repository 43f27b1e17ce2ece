"""A replacement for an object of a script that the objective changed in other processes only.

Code that is sent to trainers may refer to guards of other objectives. In the trainer, the original
object replaces each of these guards. Any other copy or pickle of a guard could be mistaken for a
result, so copying and pickling raise an error.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ....base.errors import UsageError
from ....tasks.contracts.by_value import PICKLES_CODE

#: Special methods with which Python reads, changes or prints an object.
_USES = (
    *("len", "iter", "next", "reversed", "contains", "getitem", "setitem", "delitem", "missing"),
    *("bool", "int", "float", "complex", "index", "round", "trunc", "floor", "ceil", "abs"),
    *("neg", "pos", "invert", "eq", "ne", "lt", "le", "gt", "ge", "str", "format", "bytes"),
    *("call", "enter", "exit", "array", "length_hint"),
    *(
        f"{way}{name}"
        for way in ("", "r", "i")
        for name in (
            *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"),
            *("and", "or", "xor", "lshift", "rshift"),
        )
    ),
)


class Guard:
    """A replacement for a script's object: each use of the guard raises UsageError."""

    __slots__ = ("_sentence", "_stands_for")

    def __init__(self, sentence: str, stands_for: Any) -> None:
        self._sentence = sentence
        self._stands_for = stands_for

    def __repr__(self) -> str:
        return self._sentence

    @property  # type: ignore[misc]  # that of object can be written
    def __class__(self) -> Any:
        """A class whose name is the guard's message.

        Some errors, such as those of ``json``, print only the class of an object.
        """
        return type(object.__getattribute__(self, "_sentence"), (Guard,), {"__slots__": ()})

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # Python and its tools look for what an object can do
        raise UsageError(self._sentence)

    def __reduce__(self) -> Any:
        if not PICKLES_CODE.get():
            raise UsageError(self._sentence)
        return _same, (self._stands_for,)

    __hash__ = object.__hash__


def behind(guard: Guard) -> Any:
    """Return the object for which ``guard`` stands."""
    return object.__getattribute__(guard, "_stands_for")


def _same(value: Any) -> Any:
    return value


def _refuse(self: Guard, *args: Any, **kwargs: Any) -> NoReturn:
    raise UsageError(object.__getattribute__(self, "_sentence"))


for _use in _USES:
    setattr(Guard, f"__{_use}__", _refuse)
