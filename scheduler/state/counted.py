"""Parameter and operation counts of a trial's model, known before the model is trained."""

from __future__ import annotations

from typing import Protocol

from ...base.footprint import Footprint
from ..model.study import Metrics


class Counted(Protocol):
    """An extension's counts for a model. Its class of state has a method ``counted``."""

    @property
    def size(self) -> str:
        """A name that models with about the same work have in common."""

    @property
    def profile(self) -> Metrics:
        """The features of a profile that need no measuring."""

    @property
    def tensors(self) -> Footprint | None:
        """The expected footprint of the model's tensors; None if unknown."""
