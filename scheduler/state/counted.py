"""Parameter and operation counts of a trial's model, known before the model is trained."""

from __future__ import annotations

from typing import Protocol

from ...base.footprint import Footprint
from ..model.study import Metrics


class Counted(Protocol):
    """An extension's counts for a trial's model.

    The extension's state has a method ``counted`` that returns them (``EngineState.counted``).
    """

    @property
    def size(self) -> str:
        """Return a name that is the same for models with about the same amount of work."""

    @property
    def profile(self) -> Metrics:
        """Return the features of the trial's profile that need no measuring."""

    @property
    def tensors(self) -> Footprint | None:
        """The expected footprint of the model's tensors; None if unknown."""
