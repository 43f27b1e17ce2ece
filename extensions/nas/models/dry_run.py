"""The dry run: find the choices that a model makes, and the conditions under which it makes them.

Theory of operation. A *walk* makes the model once and answers each choice with one candidate. It
notes the choices that the model asked for, and their conditions.

*Layers* are walked completely. ``LayerChoice``, ``Repeat`` and ``Cell`` say for which values each
of their parts exists (``Answers.part``). Each walk makes all these parts, and drops those that were
not chosen. So one walk finds all choices in all parts with their conditions, however deep they are
nested. The work is the sum of all parts and not the product of all choices.

*Values* go to the user's code, which may do anything with them: ``if nas.choice("se", [True,
False]): ...``. The dry run cannot look into that code, so it makes the model with several
combinations of values. If user code sees no value, one walk is enough. Otherwise there are at least
``WALKS`` walks, in which each choice takes each of its candidates, independently of the others. If
some walk did not ask for a choice, more walks are made that each differ in one value from a walk
that did ask. They take all candidates of that choice, and all candidates of each choice before it.
The values with which the model still asks for the choice are its condition. If such a walk asks for
a new choice, that choice is treated in the same way. So a choice that depends on one value, or on a
chain of such choices, is always found. A choice that needs two or more values together, none of
which has an effect alone, is found only if one of the walks has them together. A choice that is not
found is refused by name when a model that asks for it is built (``FromParams``).

Conditions are conjunctions: each name in it must have one of the listed values. If a choice is
reached in several ways, its condition is the narrowest one that covers all of them. So the space
never lacks a choice that the model asks for. It may have a choice that the model does not ask for,
which costs a dimension but causes no error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .choices import agree, answered_by

#: Number of walks if user code sees a value. With it, two choices of three candidates take a given
#: pair of values in some walk in all but 6 % of such spaces.
WALKS = 24

#: A condition: for each label, the values of which it must have one.
When = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a model: its candidates, and the values of other choices for which it exists."""

    candidates: list[Any]
    when: When


@dataclass(slots=True)
class _Walk:
    """A walk: it answers with the given values or by its number, and notes each choice."""

    number: int
    given: Mapping[str, Any]
    candidates: dict[str, list[Any]]
    seen: set[str]
    values: dict[str, Any] = field(default_factory=dict)
    #: The conditions of the enclosing parts, for each time that the choice was asked for.
    around: dict[str, list[When]] = field(default_factory=dict)
    _parts: list[tuple[str, Sequence[Any]]] = field(default_factory=list)

    def choose(self, label: str, candidates: Sequence[Any], *, seen: bool) -> Any:
        agree(label, self.candidates.setdefault(label, list(candidates)), candidates)
        if seen:
            self.seen.add(label)
        within: When = {}
        for name, values in self._parts:
            within[name] = [each for each in within.get(name, values) if each in values]
        self.around.setdefault(label, []).append(within)
        if label not in self.values:
            value = self.given[label] if label in self.given else self._value(label, candidates)
            self.values[label] = value
        return self.values[label]

    def part(self, label: str, values: Sequence[Any], make: Callable[[], Any], used: bool) -> Any:
        if label not in self.candidates:  # it has one candidate, so there was no choice
            return make()
        self._parts.append((label, values))
        try:
            module = make()
        finally:
            self._parts.pop()
        return module if used else None

    def _value(self, label: str, candidates: Sequence[Any]) -> Any:
        """Return the first candidate in walk 0, then each in turn, in an order drawn by label."""
        if self.number == 0:
            return candidates[0]
        turn, index = divmod(self.number - 1, len(candidates))
        order = list(candidates)
        Random(f"{label}/{turn}").shuffle(order)  # noqa: S311 (no secret)
        return order[index]


def explored(make: Callable[[], object], *, seen: bool = False) -> dict[str, Choice]:
    """Return all choices that ``make`` makes, by label, each after those that its condition names.

    ``seen`` is True if code also looks at the choices of layers, as mutators do. Raises UsageError
    naming a label that has different candidates, and any error that ``make`` raises.
    """
    return _DryRun(make, seen=seen).choices()


class _DryRun:
    """The dry run of one model: all its walks."""

    def __init__(self, make: Callable[[], object], *, seen: bool) -> None:
        self._make = make
        self._all_seen = seen
        self._candidates: dict[str, list[Any]] = {}
        self._seen: set[str] = set()
        self._walks: list[_Walk] = []
        self._at: dict[frozenset[tuple[str, Any]], _Walk] = {}

    def choices(self) -> dict[str, Choice]:
        self._walk(0, {})
        if self._seen:
            widest = max(map(len, self._candidates.values()))
            for number in range(1, max(WALKS, widest) + 1):
                self._walk(number, {})
        by_values = self._conditions()
        choices: dict[str, Choice] = {}
        for label, candidates in self._candidates.items():
            ways = [each for walk in self._walks for each in walk.around.get(label, ())]
            when = self._joined(_covering(ways), by_values.get(label, {}))
            choices[label] = Choice(candidates, _shortest(when, choices))
        return choices

    def _walk(self, number: int, given: Mapping[str, Any]) -> _Walk:
        walk = _Walk(number, given, self._candidates, self._seen)
        with answered_by(walk):
            self._make()
        if self._all_seen:
            self._seen.update(walk.values)
        self._walks.append(walk)
        return walk

    def _with(self, values: Mapping[str, Any]) -> _Walk:
        """Return the cached walk with these values and the first candidate of any other choice."""
        key = frozenset(values.items())
        if key not in self._at:
            self._at[key] = self._walk(0, values)
        return self._at[key]

    def _conditions(self) -> dict[str, When]:
        """Return the condition of each choice that some walk did not ask for.

        A condition covers every walk that asks for its choice, including the walks made here.
        """
        conditions: dict[str, When] = {}
        while open_ := self._not_covered(conditions):
            label, walk = open_
            condition = self._around(label, walk)
            conditions[label] = (
                _covering([conditions[label], condition]) if label in conditions else condition
            )
        return conditions

    def _not_covered(self, conditions: Mapping[str, When]) -> tuple[str, _Walk] | None:
        for label in self._candidates:
            asking_walks = [walk for walk in self._walks if label in walk.values]
            if len(asking_walks) == len(self._walks):
                continue
            for walk in asking_walks:
                if label not in conditions or not _holds(conditions[label], walk.values):
                    return label, walk
        return None

    def _around(self, label: str, walk: _Walk) -> When:
        """Return the values of earlier choices for which the model still asks for ``label``."""
        if label in self._seen:
            for value in self._candidates[label]:
                self._with(walk.values | {label: value})
        condition: When = {}
        for other in list(walk.values)[: list(walk.values).index(label)]:
            if other in self._seen:
                values = [
                    value
                    for value in self._candidates[other]
                    if label in self._with(walk.values | {other: value}).values
                ]
                if len(values) < len(self._candidates[other]):
                    condition[other] = values
        return condition

    def _joined(self, one: When, other: When) -> When:
        """Return the condition that both must hold, without names that may have any value."""
        both = dict(one)
        for name, values in other.items():
            both[name] = [each for each in both.get(name, values) if each in values]
        return {
            name: values
            for name, values in both.items()
            if len(values) < len(self._candidates[name])
        }


def _covering(ways: Sequence[When]) -> When:
    """Return the narrowest condition that holds whenever one of ``ways`` does."""
    first, *rest = ways
    return {
        name: values + [each for each in _union(name, rest) if each not in values]
        for name, values in first.items()
        if all(name in way for way in rest)
    }


def _union(name: str, ways: Sequence[When]) -> list[Any]:
    return list(dict.fromkeys(value for way in ways for value in way[name]))


def _holds(when: When, values: Mapping[str, Any]) -> bool:
    return all(name in values and values[name] in allowed for name, allowed in when.items())


def _shortest(when: When, choices: Mapping[str, Choice]) -> When:
    """Return ``when`` without the names that the condition of another name in it implies."""
    implied = {
        name
        for other in when
        for name, values in choices[other].when.items()
        if name in when and all(each in when[name] for each in values)
    }
    return {name: values for name, values in when.items() if name not in implied}
