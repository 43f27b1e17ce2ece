"""``Steps``: a hyperparameter that is a step function of the epoch, and its form in a space.

In a space each piece of ``Steps`` becomes an ordinary parameter, such as ``lr`` and ``lr@6``. So
samplers, conditions, exports and the wire need to know nothing about ``Steps`` (``base.pieces``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...base.errors import UsageError
from ...base.pieces import MARK, later_piece, piece_name
from ..common.validation import whole
from .contracts import NAMES
from .space import Parameter, When, as_parameter


@dataclass(frozen=True, slots=True, repr=False)
class Steps:
    """A parameter with a value for each part of training: ``Steps({0: [0.1, 0.05], 6: [0.01]})``.

    Each key is the number of finished epochs from which its value, a *piece*, applies. The piece of
    key 0 applies from the start, and the piece of key 6 from the seventh epoch. A piece is a
    ``Float``, an ``Int``, a ``Categorical``, a list or an Optuna distribution. ``when`` is the
    condition of all pieces. Raises UsageError if a key is not a whole number from 0 on, if there is
    no key 0, or if a piece has its own ``when``.
    """

    #: Pairs of a number of finished epochs and the parameter that applies from there, in that
    #: order.
    pieces: tuple[tuple[int, Parameter], ...]
    when: When | None

    def __init__(self, pieces: Mapping[int, Any], *, when: When | None = None) -> None:
        if not isinstance(pieces, Mapping):
            raise UsageError.refuse("Steps", pieces, "a mapping of epochs to parameters")
        by_start: dict[int, Parameter] = {}
        for start, value in pieces.items():
            piece = as_parameter(f"Steps[{start!r}]", value)
            if piece.when is not None:
                allowed = "nothing in a piece: Steps({...}, when=...) is for all of them"
                raise UsageError.refuse(f"Steps[{start!r}].when", piece.when, allowed)
            by_start[whole("a key of Steps", start, low=0)] = piece
        if 0 not in by_start:
            allowed = "whole numbers from 0 on, 0 among them: the value from the start"
            raise UsageError.refuse("the keys of Steps", sorted(by_start), allowed)
        object.__setattr__(self, "pieces", tuple(sorted(by_start.items())))
        object.__setattr__(self, "when", when)

    def __repr__(self) -> str:
        pieces = ", ".join(f"{start}: {each}" for start, each in self.pieces)
        condition = "" if self.when is None else f", when={self.when}"
        return f"Steps({{{pieces}}}{condition})"


def expanded(space: Mapping[str, Any], contract: str, max_epochs: int | None) -> Mapping[str, Any]:
    """Return ``space`` for ``parse_space``, with pieces in place of each ``Steps``.

    Raises UsageError for ``Steps`` if the code is an objective (``contract``), for ``Steps`` of the
    batch size, and for a piece that begins at ``max_epochs`` or later. Raises UsageError also if
    the name of a parameter has the form of a piece.
    """
    if not isinstance(space, Mapping):
        return space
    parameters: dict[str, Any] = {}
    for name, value in space.items():
        if isinstance(value, Steps):
            parameters |= _pieces(name, value, contract, max_epochs)
        elif contract != "objective" and isinstance(name, str) and later_piece(name, space):
            allowed = f"a name without {MARK}, or a key of Steps({{...}})"
            raise UsageError.refuse("a name in space", name, allowed)
        else:
            parameters[name] = value
    return parameters


def _pieces(name: Any, steps: Steps, contract: str, max_epochs: int | None) -> dict[str, Parameter]:
    field = f"space[{name!r}]"
    if not isinstance(name, str) or MARK in name:
        raise UsageError.refuse("a name in space", name, f"a string without {MARK} for Steps")
    if contract == "objective":
        allowed = f"no Steps for {NAMES[contract]}, which asks for its parameters as it runs"
        raise UsageError.refuse(field, steps, allowed)
    if name == "batch_size":
        allowed = "no Steps: a trial has one batch size from its start to its end"
        raise UsageError.refuse(field, steps, allowed)
    last = steps.pieces[-1][0]
    if max_epochs is not None and last >= max_epochs:
        allowed = f"0 to {max_epochs - 1}: trials have {max_epochs} epochs"
        raise UsageError.refuse(f"a key of {field}", last, allowed)
    return {piece_name(name, start): replace(each, when=steps.when) for start, each in steps.pieces}
