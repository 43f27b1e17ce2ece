"""Dataclasses that are cheap to create, because only type checkers keep their fields constant.

At runtime a frozen dataclass sets each of its fields by ``object.__setattr__``, so making one takes
about ten times as long as making an ordinary one. For values made with every epoch (events,
decisions, accepted epochs) that takes as long as all other work for the epoch.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

__all__ = ["MAX_INT", "Amount", "Finite", "Natural", "Positive", "Whole", "value_class"]

#: The largest whole number that every ledger can store.
MAX_INT = 2**63 - 1
#: Whole numbers from 0. Values read from messages and ledgers are checked.
Natural = Annotated[int, Interval(ge=0, le=MAX_INT)]
#: Whole numbers from 1.
Whole = Annotated[int, Interval(ge=1, le=MAX_INT)]
#: Numbers that JSON has.
Finite = Annotated[float, Interval(gt=-inf, lt=inf)]
#: Finite numbers from 0.
Amount = Annotated[float, Interval(ge=0, lt=inf)]
#: Finite numbers above 0.
Positive = Annotated[float, Interval(gt=0, lt=inf)]

if TYPE_CHECKING:
    from dataclasses import dataclass as value_class
else:
    from dataclasses import dataclass

    def value_class(*, frozen: bool, **options: Any) -> Any:
        """Make a dataclass whose equality and hashes are those of ``dataclass(frozen=True)``."""
        assert frozen
        return dataclass(unsafe_hash=True, **options)
