"""Reads the filters that users type to choose trials, such as ``lr<0.01 state:failed``.

A filter is a list of words separated by spaces. A row is shown if all words hold for the row. A
word with a comparison is tested on the column with that name, as the table shows it; ``:`` tests
for a part of the column's text. Any other word is searched in the texts of all columns. Quotes keep
words together.
"""

from __future__ import annotations

import math
import operator
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...base.errors import UsageError

if TYPE_CHECKING:
    from ...app.show.drawings.columns import Column

Row = TypeVar("Row")

#: A word with a comparison: a column's name, a sign, and the value to compare with. Longer signs
#: come first in the pattern.
_WORD = re.compile(r"(?P<name>.+?)(?P<sign><=|>=|!=|<|>|=|:)(?P<given>.*)", re.DOTALL)
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def chosen_by(text: str, columns: Sequence[Column[Row]]) -> Callable[[Row], bool]:
    """Return a predicate that is True for the rows that the filter ``text`` chooses.

    An empty filter chooses all rows. Raises UsageError if the filter names an unknown column, or
    has text where a number is needed.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        raise UsageError(f"a quote in the filter has no end: {text}") from None
    tests = [_test(word, columns) for word in words]
    return lambda row: all(holds(row) for holds in tests)


def _test(word: str, columns: Sequence[Column[Row]]) -> Callable[[Row], bool]:
    match = _WORD.fullmatch(word)
    if match is None:
        part = word.lower()
        return lambda row: any(part in _text(column.key(row)) for column in columns)
    name, sign, operand = match["name"], match["sign"], match["given"]
    alike = [each for each in columns if each.title.lower() == name.lower()]
    column = next((each for each in alike if each.title == name), next(iter(alike), None))
    if column is None:
        titles = ", ".join(each.title for each in columns)
        raise UsageError(f"no column is called {name}; there are: {titles}")
    holds = _compared(f"{column.title}{sign}", sign, operand)
    return lambda row: holds(column.key(row))


def _compared(typed: str, sign: str, operand: str) -> Callable[[Any], bool]:
    """Return a predicate that compares a value with ``operand`` by the comparison ``sign``.

    ``typed`` is the column and the sign as the user typed them, for messages.
    """
    part, number = operand.lower(), _number(operand)
    if sign == ":":
        return lambda value: part in _text(value)
    if sign in _ORDERS:
        if number is None:
            raise UsageError(
                f"{typed} needs a number after it, as in {typed}0.01; {operand!r} is none"
            )
        order = _ORDERS[sign]
        return lambda value: (own := _number(value)) is not None and order(own, number)

    def equal(value: Any) -> bool:
        own = _number(value)
        return own == number if None not in (own, number) else _text(value) == part

    return lambda value: equal(value) is (sign == "=")


def _number(value: Any) -> float | None:
    """Return ``value`` as a number, or None if ``value`` is not a number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _text(value: object) -> str:
    return "" if value is None else str(value).lower()
