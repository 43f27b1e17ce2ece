"""Fused groups: trials of a study that share a lane, to be trained together in its process.

The class here assumes that trials gain nothing by sharing. An extension may replace it
(``Extension.fused_groups``).
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
        """Learn from an accepted epoch of a fused group, or from a report that predicts a gain.

        Return True if the best number of the study's trials in a lane may have changed.
        """
        return False

    def gains(self, study: StudyState) -> bool:
        """Return True if trials of the study should share lanes."""
        return False

    def steps_at_once(self, study: StudyState) -> bool:
        """Return True if trials in one lane compute their steps at once."""
        return False

    def most(self, study: StudyState) -> int:
        """Return the best number of the study's trials in one lane, as far as known."""
        return 1

    def pace(self, attempt: Attempt) -> float:
        """Return the expected seconds of the attempt's epoch divided by its seconds alone."""
        return 1.0

    def planned_pace(self, study: StudyState, trials: int) -> float:
        """Return the pace of an epoch if ``trials`` trials of the study are spread over all lanes.

        The pace is the seconds of the epoch divided by its seconds alone.
        """
        return 1.0

    def more(self, study: StudyState) -> int:
        """Return the number of further trials to draw for the study, to share lanes in use."""
        return 0

    def promoted(self, study: StudyState) -> int:
        """Return the number of those further trials that may be promotions by uncertain results.

        A later result could show that another trial should have been promoted.
        """
        return 0

    def facts(self, study: StudyState) -> Mapping[str, Any]:
        """Return the facts to show about the study's fused groups."""
        return {}


#: The fused groups used if no extension has others.
NO_FUSED_GROUPS = FusedGroups()
