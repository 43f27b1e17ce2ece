"""Fused groups: trials of a study that share a lane, to be trained together in its process.

The class here says that they gain nothing by it. An extension that finds otherwise replaces it
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
        """Learn from an accepted epoch of a fused group, or whose report predicts one's gain.

        Returns True if the best number of the study's trials in a lane may have changed.
        """
        return False

    def gains(self, study: StudyState) -> bool:
        """Return True if trials of the study should share lanes."""
        return False

    def steps_at_once(self, study: StudyState) -> bool:
        """Return True if trials in one lane compute their steps at once."""
        return False

    def most(self, study: StudyState) -> int:
        """Return the number of the study's trials that should share a lane, as far as known."""
        return 1

    def pace(self, attempt: Attempt) -> float:
        """Return the expected time of an epoch of the attempt, relative to its time alone."""
        return 1.0

    def planned_pace(self, study: StudyState, trials: int) -> float:
        """Return the same for ``trials`` trials of the study that are spread over all lanes."""
        return 1.0

    def more(self, study: StudyState) -> int:
        """Return the number of further trials to ask the study for, to share lanes in use."""
        return 0

    def promoted(self, study: StudyState) -> int:
        """Return the number of these that may be promotions which a later result could undo."""
        return 0

    def facts(self, study: StudyState) -> Mapping[str, Any]:
        """Return facts of the study to be shown."""
        return {}


#: The fused groups if no extension has others.
NO_FUSED_GROUPS = FusedGroups()
