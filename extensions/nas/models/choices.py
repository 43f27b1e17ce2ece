"""Choices, and the objects that answer them: the configuration of a trial, or a dry run.

Theory of operation. A model with choices is plain Python. Wherever it calls ``choice``, or makes
one of the layers that do so, the current ``Answers`` object returns one candidate. ``build``
answers from a configuration. The dry run answers with one candidate after the other, and records
the choices. The current object is kept in a context variable, so no argument is passed through the
user's code, and two threads may build at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ....base.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T", str, int, float, bool, None)


class Answers(Protocol):
    """An object that answers the choices of a model that is being made."""

    def choose(self, label: str, candidates: Sequence[Any], *, seen: bool) -> Any:
        """Return one of ``candidates``. ``seen``: the user's code may branch on it."""

    def part(self, label: str, values: Sequence[Any], make: Callable[[], Any], used: bool) -> Any:
        """Return ``make()``, a part that exists if ``label`` has one of ``values``, or None.

        ``used``: the answer was one of them. If not, returns None, and the part is made at most to
        inspect it.
        """


_ANSWERS: ContextVar[Answers | None] = ContextVar("penstock_nas_answers", default=None)


@contextmanager
def answered_by(answers: Answers) -> Iterator[None]:
    """Let ``answers`` answer the choices of this thread in the context."""
    token = _ANSWERS.set(answers)
    try:
        yield
    finally:
        _ANSWERS.reset(token)


def answers(label: str) -> Answers:
    """Return the current answers. Raises UsageError, naming ``label``, if there are none."""
    current = _ANSWERS.get()
    if current is None:
        raise UsageError(
            f"the choice {label!r} is made where nobody answers it: make choices in __init__ of a"
            " nas.ModelSpace, and the model with nas.build(Net, params)",
            label,
        )
    return current


def choice(label: str, candidates: Sequence[T]) -> T:
    """Return one of ``candidates``: strings, numbers, booleans or None. ``label`` is its name.

    It is a plain value, so ``2 * nas.choice("width", [16, 32])`` is an expression like any other.
    The same label is the same choice, and has the same candidates everywhere. Raises UsageError
    outside of ``nas.build`` and ``nas.space``, and if the configuration has no such candidate.
    """
    candidate: T = answers(label).choose(label, listed(label, candidates), seen=True)
    return candidate


def listed(label: str, candidates: Sequence[Any]) -> list[Any]:
    """Return ``candidates`` as a list. Raises UsageError, naming ``label``, if not valid."""
    if not isinstance(label, str) or not label:
        raise UsageError.refuse("the label of a choice", label, "a string that is not empty")
    if isinstance(candidates, str) or not isinstance(candidates, Sequence) or not candidates:
        allowed = "a list of at least one value"
        raise UsageError.refuse(f"the candidates of {label!r}", candidates, allowed)
    return list(candidates)


def agree(label: str, before: Sequence[Any], now: Sequence[Any]) -> None:
    """Raise UsageError unless both are the same candidates, in one order."""
    if [(type(each), each) for each in before] != [(type(each), each) for each in now]:
        allowed = f"{list(before)}, as the other choice with this label has, or another label"
        raise UsageError.refuse(f"the candidates of {label!r}", list(now), allowed)


class Chosen(dict[str, Any]):
    """Choices that a model made, by label."""

    #: Models are compared by their parts, without it.
    told_by_parts = True


class FromParams:
    """Answers from a configuration, which may have more names than the model has choices."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params
        self._candidates: dict[str, list[Any]] = {}
        #: Chosen candidates by label, in the order in which the model asked.
        self.chosen = Chosen()

    def choose(self, label: str, candidates: Sequence[Any], *, seen: bool) -> Any:
        """Return the value that the configuration has. Raises UsageError if it lacks ``label``."""
        agree(label, self._candidates.setdefault(label, list(candidates)), candidates)
        if label not in self._params:
            names = ", ".join(self._params) or "nothing"
            raise UsageError(
                f"params has no {label!r}, by which the model chooses among {list(candidates)}."
                f" params has {names}: give optimize() the model's choices, nas.space(Net)",
                label,
            )
        value = self._params[label]
        if value not in candidates:
            raise UsageError.refuse(f"params[{label!r}]", value, f"one of {list(candidates)}")
        self.chosen[label] = candidates[candidates.index(value)]
        return self.chosen[label]

    def part(self, label: str, values: Sequence[Any], make: Callable[[], Any], used: bool) -> Any:
        """Return ``make()`` if the part is used, else None: other parts are never made."""
        return make() if used else None


def choices_of(model: nn.Module) -> list[str]:
    """Return the hyperparameters by which ``nas.build`` made the model, or parts of it."""
    architectures = (getattr(each, "architecture", None) for each in model.modules())
    return sorted({name for each in architectures if isinstance(each, Chosen) for name in each})
