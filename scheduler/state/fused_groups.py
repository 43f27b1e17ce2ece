"""Fused groups: trials of one study that share a lane, so that its trainer computes them at once.

The class here assumes that trials gain nothing by sharing a lane. An extension may replace it by
one that knows the gains (``Extension.fused_groups``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model.events import EpochReported
    from .state import Attempt, StudyState


class FusedGroups:
    """Fused groups without gain: trials of a study do not share lanes."""

    def observe(self, study: StudyState, attempt: Attempt, event: EpochReported) -> bool:
        """Learn from an accepted epoch in a shared lane, or from a report that predicts a gain.

        Return True if ``most`` may have changed for the study.
        """
        return False

    def gains(self, study: StudyState) -> bool:
        """Return True if trials of the study should share lanes."""
        return False

    def steps_at_once(self, study: StudyState) -> bool:
        """Return True if trials of the study in one lane compute their steps at once."""
        return False

    def most(self, study: StudyState) -> int:
        """Return the best number of the study's trials in one lane, as far as known."""
        return 1

    def pace(self, attempt: Attempt) -> float:
        """Return the expected seconds of the attempt's epoch divided by its seconds alone.

        This counts time in turn (``scheduler.state.epoch_times``).
        """
        return 1.0

    def planned_pace(self, study: StudyState, trials: int) -> float:
        """Return the pace of an epoch if ``trials`` trials of the study are spread over all lanes.

        The pace is the seconds of the epoch divided by its seconds alone.
        """
        return 1.0

    def more(self, study: StudyState) -> int:
        """Return the number of further trials of the study that should take seats in its lanes."""
        return 0

    def promoted(self, study: StudyState) -> int:
        """Return the number of the trials of ``more`` that may be uncertain promotions.

        After an uncertain promotion, later results may show that the strategy should have promoted
        another trial.
        """
        return 0

    def facts(self, study: StudyState) -> Mapping[str, Any]:
        """Return the facts to show about the study's fused groups."""
        return {}


#: The fused groups of an engine without an extension for them.
NO_FUSED_GROUPS = FusedGroups()
