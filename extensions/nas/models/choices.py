"""Choices, and the objects that answer them: the configuration of a trial, or a dry run.

Theory of operation. A model with choices is plain Python. Wherever it calls ``choice``, or makes
one of the layers that do so, the current ``Answers`` object returns one candidate. ``build``
answers from a configuration. The dry run answers with one candidate after the other, and records
the choices. The current ``Answers`` object is in a context variable, so no argument is passed
through the user's code, and two threads may build models at the same time.
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
        """Return one of ``candidates``.

        ``seen`` is True if the user's code gets the answer, so that it may branch on it.
        """

    def part(self, label: str, values: Sequence[Any], make: Callable[[], Any], used: bool) -> Any:
        """Return ``make()``, or None if the part is not used.

        The part exists if the answer for ``label`` is one of ``values``; ``used`` is True if it is.
        An unused part is made at most to inspect it.
        """


_ANSWERS: ContextVar[Answers | None] = ContextVar("penstock_nas_answers", default=None)


@contextmanager
def answered_by(answers: Answers) -> Iterator[None]:
    """Let ``answers`` answer all choices of this thread within the context."""
    token = _ANSWERS.set(answers)
    try:
        yield
    finally:
        _ANSWERS.reset(token)


def answers(label: str) -> Answers:
    """Return the current ``Answers``. Raises UsageError, naming ``label``, if there is none."""
    current = _ANSWERS.get()
    if current is None:
        raise UsageError(
            f"the choice {label!r} is made where nobody answers it: make choices in __init__ of a"
            " nas.ModelSpace, and the model with nas.build(Net, params)",
            label,
        )
    return current


def choice(label: str, candidates: Sequence[T]) -> T:
    """Return one of ``candidates`` (strings, numbers, booleans or None) for the choice ``label``.

    The result is a plain value, so ``2 * nas.choice("width", [16, 32])`` is an ordinary expression.
    Calls with the same label are the same choice, and must have the same candidates. Raises
    UsageError outside of ``nas.build`` and ``nas.space``, and if the configuration has no such
    candidate.
    """
    candidate: T = answers(label).choose(label, listed(label, candidates), seen=True)
    return candidate


def listed(label: str, candidates: Sequence[Any]) -> list[Any]:
    """Return ``candidates`` as a list. Raises UsageError, naming ``label``, if they are invalid."""
    if not isinstance(label, str) or not label:
        raise UsageError.refuse("the label of a choice", label, "a string that is not empty")
    if isinstance(candidates, str) or not isinstance(candidates, Sequence) or not candidates:
        allowed = "a list of at least one value"
        raise UsageError.refuse(f"the candidates of {label!r}", candidates, allowed)
    return list(candidates)


def agree(label: str, before: Sequence[Any], now: Sequence[Any]) -> None:
    """Raise UsageError unless ``before`` and ``now`` are the same candidates in the same order."""
    if [(type(each), each) for each in before] != [(type(each), each) for each in now]:
        allowed = f"{list(before)}, as the other choice with this label has, or another label"
        raise UsageError.refuse(f"the candidates of {label!r}", list(now), allowed)


class Chosen(dict[str, Any]):
    """The choices that a model made: the chosen candidates by label."""

    #: True: models are compared by their parts, and this attribute is skipped.
    told_by_parts = True


class FromParams:
    """Answers from a configuration, which may also have names that are no choices of the model."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params
        self._candidates: dict[str, list[Any]] = {}
        #: The chosen candidates by label, in the order in which the model asked for them.
        self.chosen = Chosen()

    def choose(self, label: str, candidates: Sequence[Any], *, seen: bool) -> Any:
        """Return the configuration's value of ``label``. Raises UsageError if it has none."""
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
        """Return ``make()`` if the part is used, else None: unused parts are not made."""
        return make() if used else None


def choices_of(model: nn.Module) -> list[str]:
    """Return the names of the choices of all parts of ``model`` that ``nas.build`` made."""
    architectures = (getattr(each, "architecture", None) for each in model.modules())
    return sorted({name for each in architectures if isinstance(each, Chosen) for name in each})
