"""Hyperparameters that are step functions of the epoch, as plain entries of a configuration.

Theory of operation. ``lr`` with ``Steps({0: ..., 6: ...})`` is two entries, its *pieces*: ``lr``,
in force from the start, and ``lr@6``, in force once six epochs are done: in the seventh. Code that
samples, stores, sends or shows configurations need not know about pieces. Code that trains, or
that compares from which epoch on two configurations differ, uses this module.

A configuration takes effect epoch by epoch: first ``entering(params, 0)``, then
``entering(params, done)`` at the start of the epoch after ``done``. So two trials whose entering
values are equal for 0 to ``k`` - 1 have equal hyperparameters in their first ``k`` epochs, whatever
enters later. A chained key follows: H_0 from the values that enter at 0, H_k from H_(k-1) and those
that enter at k. A forked trial (PBT) takes over another trial's state after ``done`` epochs, with
hyperparameters of its own: ``in_force(params, done)``. From there on it continues as any trial.

A value counts as entering even if it equals the one before: it is then set again, which undoes
any change that the user's code made to it. An entry ``x@6`` without an entry ``x`` is no piece but
a parameter of that name, as an older study may have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

V = TypeVar("V")

#: Separator between the name of a hyperparameter and the start of a piece.
MARK = "@"
_LATER = re.compile(rf"(.+){MARK}([1-9][0-9]*)", re.DOTALL)


def piece_name(name: str, start: int) -> str:
    """Return the entry of ``name``'s piece that is in force once ``start`` epochs are done."""
    return f"{name}{MARK}{start}" if start else name


def later_piece(entry: str, params: Mapping[str, object]) -> tuple[str, int] | None:
    """Split a later piece into its hyperparameter and its start (1 or more).

    Returns None if ``entry`` is not a later piece of a hyperparameter in ``params``. ``entry``
    itself need not be in ``params``.
    """
    match = _LATER.fullmatch(entry)
    if match is None or match[1] not in params:
        return None
    return match[1], int(match[2])


def pieces(params: Mapping[str, V]) -> Iterator[tuple[str, int, V]]:
    """Yield each entry as (hyperparameter, start of the piece, value); constants start at 0."""
    for entry, value in params.items():
        name, start = later_piece(entry, params) or (entry, 0)
        yield name, start, value


def in_force(params: Mapping[str, V], done: int) -> dict[str, V]:
    """Return the hyperparameters in force after ``done`` epochs (in epoch ``done`` + 1), by name.

    They are in the order in which the names first occur in ``params``.
    """
    latest: dict[str, tuple[int, V]] = {}
    for name, start, value in pieces(params):
        if start <= done and start >= latest.get(name, (0,))[0]:
            latest[name] = start, value
    return {name: value for name, (_, value) in latest.items()}


def entering(params: Mapping[str, V], done: int) -> dict[str, V]:
    """Return the hyperparameters that come into force after exactly ``done`` epochs, by name.

    At 0 these are all that are in force from the start. Later the result is mostly empty.
    """
    return {name: value for name, start, value in pieces(params) if start == done}
