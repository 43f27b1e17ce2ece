"""Company: trials of a study that are at work in one lane, beside each other.

An extension may find that they gain by it, and replace what is said here, which holds where none
does (``Extension.company``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model.events import EpochReported
    from .state import Attempt, StudyState


class Company:
    """No trials gain by being beside others of their study."""

    def observe(self, study: StudyState, attempt: Attempt, event: EpochReported) -> bool:
        """Learn from an accepted epoch that had company, or whose report tells of it.

        Returns whether lanes may have another number of the study's trials from now on.
        """
        return False

    def gains(self, study: StudyState) -> bool:
        """Tell whether trials of the study are to be beside each other."""
        return False

    def steps_at_once(self, study: StudyState) -> bool:
        """Tell whether those beside each other compute their steps at once."""
        return False

    def most(self, study: StudyState) -> int:
        """Return how many trials of the study are to be in one lane, as far as is known."""
        return 1

    def pace(self, attempt: Attempt) -> float:
        """Return by what factor an epoch of the attempt is expected to take longer than alone."""
        return 1.0

    def planned_pace(self, study: StudyState, trials: int) -> float:
        """Return the same for so many trials of the study, if they are spread over all lanes."""
        return 1.0

    def more(self, study: StudyState) -> int:
        """Return how many more trials the study is asked for, to be beside those at work."""
        return 0

    def promoted(self, study: StudyState) -> int:
        """Return how many of those may be promotions that a later result could undo."""
        return 0

    def facts(self, study: StudyState) -> Mapping[str, Any]:
        """Return facts of the study for who shows it."""
        return {}


#: The company where no extension has another.
NO_COMPANY = Company()
