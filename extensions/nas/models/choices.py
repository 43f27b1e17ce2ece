"""A choice, and who answers it: the configuration of a trial, or a dry run.

Theory of operation. A model with choices is plain Python. Wherever it calls ``choice``, or makes
one of the layers that do so, whoever makes the model answers with one candidate. ``build`` answers
from a configuration. The dry run answers with one candidate after the other, and notes what was
asked. Who answers is kept in a context variable, so no argument is handed through the user's code,
and two threads may build at the same time.
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
    """Who answers the choices of a model in the making."""

    def choose(self, label: str, candidates: Sequence[Any], *, seen: bool) -> Any:
        """One of ``candidates``. ``seen``: the user's code gets it, and may branch on it."""

    def part(self, label: str, values: Sequence[Any], make: Callable[[], Any], used: bool) -> Any:
        """What ``make`` makes: a part that is there where ``label`` has one of ``values``.

        ``used``: the answer was one of them. Otherwise None, and it is made for a look at most.
        """


_ANSWERS: ContextVar[Answers | None] = ContextVar("penstock_nas_answers", default=None)


@contextmanager
def answered_by(answers: Answers) -> Iterator[None]:
    """Within it, the choices of this thread are answered by ``answers``."""
    token = _ANSWERS.set(answers)
    try:
        yield
    finally:
        _ANSWERS.reset(token)


def answers(label: str) -> Answers:
    """Who answers now. Raises UsageError where nobody does, naming ``label``."""
    found = _ANSWERS.get()
    if found is None:
        raise UsageError(
            f"the choice {label!r} is made where nobody answers it: make choices in __init__ of a"
            " nas.ModelSpace, and the model with nas.build(Net, params)",
            label,
        )
    return found


def choice(label: str, candidates: Sequence[T]) -> T:
    """One of ``candidates``: strings, numbers, booleans or None. ``label`` is its name.

    It is a plain value, so ``2 * nas.choice("width", [16, 32])`` is an expression like any other.
    The same label is the same choice, and has the same candidates everywhere. Raises UsageError
    outside of ``nas.build`` and ``nas.space``, and where the configuration has no such candidate.
    """
    chosen: T = answers(label).choose(label, listed(label, candidates), seen=True)
    return chosen


def listed(label: str, candidates: Sequence[Any]) -> list[Any]:
    """``candidates`` as a list. UsageError naming ``label`` if they are none, or too few."""
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
        #: What was chosen, in the order in which the model asked.
        self.chosen = Chosen()

    def choose(self, label: str, candidates: Sequence[Any], *, seen: bool) -> Any:
        """What the configuration has. Raises UsageError naming a label that it lacks."""
        agree(label, self._candidates.setdefault(label, list(candidates)), candidates)
        if label not in self._params:
            names = ", ".join(self._params) or "nothing"
            raise UsageError(
                f"params has no {label!r}, which the model chooses by, one of {list(candidates)};"
                f" it has {names}: give optimize the choices of the model, nas.space(Net)",
                label,
            )
        value = self._params[label]
        if value not in candidates:
            raise UsageError.refuse(f"params[{label!r}]", value, f"one of {list(candidates)}")
        self.chosen[label] = candidates[candidates.index(value)]
        return self.chosen[label]

    def part(self, label: str, values: Sequence[Any], make: Callable[[], Any], used: bool) -> Any:
        """What ``make`` makes where it is used: other parts are never made."""
        return make() if used else None


def choices_of(model: nn.Module) -> list[str]:
    """The hyperparameters that ``nas.build`` made the model by, or parts of it."""
    made = (getattr(each, "architecture", None) for each in model.modules())
    return sorted({name for each in made if isinstance(each, Chosen) for name in each})
