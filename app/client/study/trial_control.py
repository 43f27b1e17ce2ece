"""``study.trial(7)``: one trial of a study, which its user stops, pauses or sends on."""

from __future__ import annotations

from ...common.validation import whole
from ...extensions import end_of
from ...host.tracebacks import to_the_user
from .handle import StudyHandle


class TrialControl:
    """One trial of a study, to stop it, send it on, or try it again while others go on."""

    def __init__(self, handle: StudyHandle, number: int) -> None:
        handle.check_submitted()
        self._handle = handle
        #: The trial's number in the study.
        self.number = whole("trial", number, low=0)

    def __repr__(self) -> str:
        return f"<trial {self.number} of {self._handle.study_name}>"

    @to_the_user
    def stop(self, *, reason: str = "") -> None:
        """Stop it: it is pruned after its last accepted epoch, and its slot is free at once."""
        self._steer("stop", reason)

    @to_the_user
    def pause(self, *, reason: str = "") -> None:
        """Pause it at the end of its epoch until ``resume``. Others get its slot meanwhile.

        A rung whose trials wait for each other goes on without it.
        """
        self._steer("pause", reason)

    @to_the_user
    def resume(self, *, reason: str = "") -> None:
        """Continue it after ``pause``, before other trials that wait."""
        self._steer("resume", reason)

    @to_the_user
    def promote(self, to: int | None = None, *, reason: str = "") -> None:
        """Train it up to epoch ``to``, or its next rung, before other trials.

        It may be beyond the study's ``max_epochs``, and of a study that is over, which goes on.
        """
        self._steer("promote", reason, to)

    @to_the_user
    def retry(self, *, reason: str = "") -> None:
        """Try it again after it failed, from its newest state; a study that is over goes on."""
        self._steer("retry", reason)

    def _steer(self, verb: str, reason: str, to: int | None = None) -> None:
        steer = end_of("steering", "control", "trial()").steer
        steer(self._handle.connect(), self._handle.id, self.number, verb, to=to, why=reason)
