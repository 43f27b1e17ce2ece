"""``study.trial(7)``: stop, pause, promote or retry one trial of a study."""

from __future__ import annotations

from ...common.validation import whole
from ...extensions import end_of
from ...host.tracebacks import to_the_user
from .handle import StudyHandle


class TrialControl:
    """One trial of a study, to be stopped, paused, promoted or retried while others go on."""

    def __init__(self, handle: StudyHandle, number: int) -> None:
        handle.check_submitted()
        self._handle = handle
        #: The trial's number in the study.
        self.number = whole("trial", number, low=0)

    def __repr__(self) -> str:
        return f"<trial {self.number} of {self._handle.study_name}>"

    @to_the_user
    def stop(self, *, reason: str = "") -> None:
        """Stop the trial: prune it after its last accepted epoch, and free its slot at once."""
        self._steer("stop", reason)

    @to_the_user
    def pause(self, *, reason: str = "") -> None:
        """Pause the trial at the end of its epoch until ``resume``; other trials get its slot.

        A rung whose trials wait for each other goes on without this trial.
        """
        self._steer("pause", reason)

    @to_the_user
    def resume(self, *, reason: str = "") -> None:
        """Continue the trial after ``pause``, before other waiting trials."""
        self._steer("resume", reason)

    @to_the_user
    def promote(self, to: int | None = None, *, reason: str = "") -> None:
        """Train the trial up to epoch ``to``, by default its next rung, before other trials.

        ``to`` may be beyond the study's ``max_epochs``. A study that is over goes on.
        """
        self._steer("promote", reason, to)

    @to_the_user
    def retry(self, *, reason: str = "") -> None:
        """Retry a failed trial from its newest state. A study that is over goes on."""
        self._steer("retry", reason)

    def _steer(self, verb: str, reason: str, to: int | None = None) -> None:
        steer = end_of("steering", "control", "trial()").steer
        steer(self._handle.connect(), self._handle.id, self.number, verb, to=to, why=reason)
