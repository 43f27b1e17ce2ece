"""Values that are made by the thousand: dataclasses that only type checkers keep from changing.

At runtime a frozen dataclass sets each of its fields by ``object.__setattr__``, which makes it
about ten times as slow to make as another. For what is made with every epoch (events, decisions,
accepted epochs) that comes to as much as all else that is done for the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["value_class"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value_class
else:
    from dataclasses import dataclass

    def value_class(*, frozen: bool, **options: Any) -> Any:
        """Make a dataclass whose equality and hashes are those of ``dataclass(frozen=True)``."""
        assert frozen
        return dataclass(unsafe_hash=True, **options)
