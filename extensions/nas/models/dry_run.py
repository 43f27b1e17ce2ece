"""The dry run: which choices a model makes, and under which others.

Theory of operation. A *walk* makes the model once and answers each choice with one candidate. It
notes what was asked, and under which conditions.

*Layers* are walked completely. ``LayerChoice``, ``Repeat`` and ``Cell`` say which of their parts is
there under which values (``Answers.part``). Each walk makes all those parts, also the ones that
were not chosen, and drops these. So what a part asks is found with its conditions, however deep,
in one walk; the work is the sum of all parts and not the product of all choices.

*Values* go to the user's code, which may do with them what it likes: ``if nas.choice("se", [True,
False]): ...``. There is no looking into it, so the model is walked at several points. Where no
value is seen by user code, one walk is all. Otherwise there are at least ``WALKS``, in which each
choice takes each of its candidates, independently of the others. A choice that some walk did not
ask for is then varied around a walk that did: all its candidates, and all candidates of each value
before it, one at a time. The values with which it is still asked for are its condition. What such
a walk asks for the first time is varied in turn. So a choice that depends on one value, or on a
chain of such choices, is always found. One that needs two values or more together, none of which
has an effect alone, is found if one of the walks has them together. One that is not found is
refused by name when a model that asks for it is built (``FromParams``).

Conditions are conjunctions: each name has one of its values. Where a choice is reached in several
ways its condition is the narrowest that covers all of them. So it is never absent where the model
asks for it. It may be there where the model does not, which costs a dimension and no error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .choices import agree, answered_by

#: Walks where user code sees a value: two choices of three candidates meet in a given pair of
#: values in all but 6 % of such spaces.
WALKS = 24

#: By label, the values that it must have.
When = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a model: its candidates, and what other choices must be where it is made."""

    candidates: list[Any]
    when: When


@dataclass(slots=True)
class _Walk:
    """Answers with the values given, else by the number of the walk, and notes what is asked."""

    number: int
    given: Mapping[str, Any]
    candidates: dict[str, list[Any]]
    seen: set[str]
    values: dict[str, Any] = field(default_factory=dict)
    #: The conditions of the parts around each time a choice was made.
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
        if label not in self.candidates:  # one candidate, so nobody was asked
            return make()
        self._parts.append((label, values))
        try:
            module = make()
        finally:
            self._parts.pop()
        return module if used else None

    def _value(self, label: str, candidates: Sequence[Any]) -> Any:
        """Return the first candidate in walk 0, then each in turn, in an order by the label."""
        if self.number == 0:
            return candidates[0]
        turn, index = divmod(self.number - 1, len(candidates))
        order = list(candidates)
        Random(f"{label}/{turn}").shuffle(order)  # noqa: S311 (no secret)
        return order[index]


def explored(make: Callable[[], object], *, seen: bool = False) -> dict[str, Choice]:
    """Return all choices that ``make`` makes, by label, each after those in its condition.

    ``seen``: code looks at what layers chose as well, as mutators do. Raises UsageError for one
    label with different candidates, naming it, and what ``make`` raises.
    """
    return _DryRun(make, seen=seen).choices()


class _DryRun:
    """The walks of one model."""

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
        """Return the cached walk with these values, and the first candidate of any other choice."""
        key = frozenset(values.items())
        if key not in self._at:
            self._at[key] = self._walk(0, values)
        return self._at[key]

    def _conditions(self) -> dict[str, When]:
        """Return the condition of each choice that some walk did not ask for.

        A condition covers every walk that asks for its choice, also walks made on the way.
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
        """Return the values of choices before ``label`` with which ``walk`` still asks for it."""
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
        """Both conditions, without names that may have any value."""
        both = dict(one)
        for name, values in other.items():
            both[name] = [each for each in both.get(name, values) if each in values]
        return {
            name: values
            for name, values in both.items()
            if len(values) < len(self._candidates[name])
        }


def _covering(ways: Sequence[When]) -> When:
    """Return the narrowest condition that holds wherever one of ``ways`` does."""
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
    """``when`` without what another name in it implies, which has that condition itself."""
    implied = {
        name
        for other in when
        for name, values in choices[other].when.items()
        if name in when and all(each in when[name] for each in values)
    }
    return {name: values for name, values in when.items() if name not in implied}
