"""Counts of a trial's model that are known before it is trained."""

from __future__ import annotations

from typing import Protocol

from ...base.footprint import Footprint
from ..model.study import Metrics


class Counted(Protocol):
    """Counts that an extension has of a model. The class of its state has a method ``counted``."""

    @property
    def size(self) -> str:
        """Name models that do about as much work."""

    @property
    def profile(self) -> Metrics:
        """Return features of a profile that need no measuring."""

    @property
    def tensors(self) -> Footprint | None:
        """Expected footprint of its tensors; None if unknown."""
