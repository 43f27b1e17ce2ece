"""The engine's bookkeeping: moving trials along their table, freeing slots, noting what changed.

The lowest of the engine's three floors (record, placing, engine): it decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .decisions import Cut, Decision, Revoke
from .events import Event
from .state import Attempt, Changes, DeviceRecord, DeviceState, EngineState, StudyState
from .strategy import Strategy, make_strategy
from .study import StudySpec
from .trial import FINAL, Step, Trial, TrialState

#: Steps of a trial kept in memory for exceptions.
STORY_KEPT = 30

_ACTIVE = frozenset({TrialState.PROPOSED, TrialState.WAITING, TrialState.RUNNING})


class Refused(Exception):
    """The event does not count: it is late, repeated, or about something unknown."""


class Record:
    """The state, the event at work, and the decisions and changes that follow from it."""

    def __init__(
        self,
        state: EngineState | None = None,
        strategies: Callable[[StudySpec], Strategy] = make_strategy,
    ) -> None:
        self.state = state or EngineState()
        self._strategies = strategies
        self._out: list[Decision] = []
        self._changes = Changes()
        self._at = 0.0
        self._event = Event(at=0.0)
        #: Devices of several slots where attempts began or ended by this event.
        self._touched: set[str] = set()

    def take_changes(self) -> Changes:
        """What changed since the last call, for the projections."""
        changes, self._changes = self._changes, Changes()
        return changes

    def story(self, trial: str) -> tuple[str, ...]:
        """The last steps of a trial of a running study: event, its cause, state before and after.

        The whole story is in the ledger's events; this is what an exception can carry.
        """
        return tuple(self._trial(trial).story)

    def _move(self, study: StudyState, trial: Trial, step: Step) -> None:
        before = trial.state
        trial.step(step)
        study.active += (trial.state in _ACTIVE) - (before in _ACTIVE)
        what = type(self._event).__name__
        cause = f" (answers {self._event.cause})" if self._event.cause else ""
        moved = " ".join((before, step, trial.state))
        trial.story.append(f"#{self.state.seq} {what}{cause}: {moved}")
        del trial.story[:-STORY_KEPT]
        if trial.state in FINAL:
            trial.finished_at = self._at
            if trial.id in self.state.ready:
                self.state.ready.remove(trial.id)
        if step in (Step.REACH, Step.FINISH, Step.PRUNE):
            study.succeeded += 1
        self._changes.trials[trial.id] = trial

    def _close_attempt(self, trial: Trial) -> Attempt:
        attempt = self.state.attempts.pop(trial.fence)
        members, seconds = attempt.segment.members, self._at - attempt.dispatched_at
        self.state.studies[attempt.study].used += len(members) * seconds
        for member in members:
            device = self.state.devices[member.device]
            device.fences[:] = [0 if fence == trial.fence else fence for fence in device.fences]
            self.state.faults.saw_work(seconds)
            self._touch(device)
            if member.device in self.state.held:
                self._note_device(member.device)
        trial.fence = 0
        return attempt

    def _touch(self, device: DeviceState) -> None:
        """An attempt began or ended there: who shares it may be others now."""
        if device.device.slots > 1:
            self._touched.add(device.device.name)

    def _revoke(self, trial: Trial, outcome: str = "revoked") -> None:
        """Close the trial's attempt and fence it off; ``outcome`` as in ``profiling.tally``."""
        self.state.tally.saw(outcome)
        fence = trial.fence
        ranks = len(self._close_attempt(trial).segment.members)
        self._decide(Revoke, trial=trial.id, fence=fence, ranks=ranks)

    def _check_fence(self, trial: Trial, fence: int) -> None:
        if fence != trial.fence:
            raise Refused(f"fence {fence} of {trial.id} is not the open one")

    def _study(self, name: str) -> StudyState:
        if name not in self.state.studies:
            raise Refused(f"study {name} is not running")
        return self.state.studies[name]

    def _trial(self, name: str) -> Trial:
        if name not in self.state.trials:
            raise Refused(f"trial {name} is not of a running study")
        return self.state.trials[name]

    def _device(self, name: str) -> DeviceState:
        if name not in self.state.devices:
            raise Refused(f"{name} has not joined")
        return self.state.devices[name]

    def _fences_on(self, device: str) -> list[int]:
        """The attempts at work on a device, in the order of their dispatch."""
        return sorted({fence for fence in self.state.devices[device].fences if fence})

    def _cut_all(self, device: str) -> None:
        """What runs on a device shall end with its epoch."""
        for fence in self._fences_on(device):
            attempt = self.state.attempts[fence]
            attempt.cut = True
            self._decide(Cut, trial=attempt.segment.trial, fence=fence)

    def _note_device(self, name: str, reason: str = "") -> None:
        known = self.state.devices[name]
        self._changes.devices[name] = DeviceRecord(
            known.device, known.incarnation, self.state.standing(name), self._at, reason
        )

    def _trials_of(self, study: StudyState) -> list[Trial]:
        return [self.state.trials[name] for name in study.trials]

    def _touch_study(self, study: StudyState) -> None:
        self._changes.studies[study.spec.id] = study.record

    def _decision_id(self) -> str:
        return f"{self.state.seq}.{len(self._out)}"

    def _decide(self, kind: type[Decision], **fields: Any) -> None:
        self._out.append(kind(id=self._decision_id(), cause=self.state.seq, **fields))
