"""Compare the broker with the engine's state: find new and missing devices, and lost attempts.

Leases expire on the broker's clock, so the workers' clocks do not matter. An attempt is lost

- when its fence is gone (the broker lost its data) or was never published (the scheduler died
  between the ledger's commit and the publication),
- when no worker claimed it in time (the message was lost, or its worker hangs); a worker far from
  the broker has longer,
- when its lease expired (the worker died or was stopped), or
- when it is marked done and its report never came.

A wrong verdict costs repeated work, but never gives a wrong result: the fence moves on.

A worker that was told to stop waits for its attempts to end. If the end of an attempt is not in
sight, waiting gains nothing: the attempt is given up at once, so that the worker can leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....scheduler.engine.engine import Engine
from ....scheduler.model.events import AttemptLost, DeviceDraining, DeviceJoined, DeviceLeft, Event
from ....scheduler.state.state import Attempt, EngineState
from ...common.ports import DRAIN_GRACE

if TYPE_CHECKING:
    from ...common.ports import AttemptStatus, Survey

#: Seconds after the ledger's commit in which a fence must be on the broker. It is published in the
#: same turn of the loop, so this need only tell an earlier turn's dispatch from this one's.
PUBLISH_TIMEOUT = 0.2
#: Round trips of a worker to the broker that are added to the time limit of its claim. Celery makes
#: most of them when it begins to read its queues, after the device is registered.
CLAIM_TRIPS = 40
#: Seconds in which the report of an attempt that is done must have been read.
REPORT_TIMEOUT = 10.0
#: Seconds that replace ``DRAIN_GRACE`` if an attempt's end is not in sight: no epoch of the trial
#: was ever measured, an epoch takes longer than the grace, or this one has taken twice the usual
#: time.
ENDLESS_GRACE = 2.0
ENDLESS = "its worker was told to stop, and the end of what ran there was not in sight"
#: The reason why a device left that had announced to take no more segments.
STOPPED = "its worker was stopped"


class Reaper:
    """Turns surveys of the broker into events.

    It remembers only since when each attempt has been done, and since when each device has drained.
    """

    def __init__(self, claim_timeout: float) -> None:
        """``claim_timeout`` is in seconds, for workers whose round trip takes no time."""
        self._claim_timeout = claim_timeout
        self._done_since: dict[int, float] = {}
        self._draining_since: dict[str, float] = {}

    def findings(
        self, survey: Survey, engine: Engine, at: float, *, blind: bool = False
    ) -> Iterator[Event]:
        """Yield events for the differences between the broker and the engine's state.

        ``blind``: the broker was away just now, so silence proves nothing yet, because keys that
        expire could not be renewed. A missing key that never expires still counts as lost.
        """
        state = engine.state
        yield from _devices(survey, state, at, blind=blind)
        self._done_since = {f: t for f, t in self._done_since.items() if f in state.attempts}
        draining = {name for name, device in state.devices.items() if device.draining}
        self._draining_since = {n: self._draining_since.get(n, at) for n in draining}
        for fence, attempt in list(state.attempts.items()):
            run_state = survey.states.get(attempt.segment.trial)
            age = at - attempt.dispatched_at
            reason, ranks = _unpublished(run_state, fence, age), tuple[int, ...]()
            if reason is None and run_state is not None and run_state.fence == fence and not blind:
                reason, ranks = (
                    self._timed_out(run_state, attempt, fence, at, survey),
                    run_state.absent,
                )
            if reason is None and self._endless(attempt, engine, at):
                reason = ENDLESS
            if reason is not None:
                yield AttemptLost(
                    at=at,
                    cause=attempt.decision,
                    trial=attempt.segment.trial,
                    fence=fence,
                    reason=reason,
                    ranks=ranks,
                )

    def _timed_out(
        self, seen: AttemptStatus, attempt: Attempt, fence: int, at: float, survey: Survey
    ) -> str | None:
        if seen.state == "dispatched":
            limit = self._claim_timeout + CLAIM_TRIPS * _round_trip(attempt, survey)
            late = at - attempt.dispatched_at > limit
            return f"no worker claimed it in {limit:.3g} s" if late else None
        if seen.state == "running":
            return "its lease ran out" if seen.absent else None
        since = self._done_since.setdefault(fence, at)
        return "its last report was lost" if at - since > REPORT_TIMEOUT else None

    def _endless(self, attempt: Attempt, engine: Engine, at: float) -> bool:
        """Return True if the attempt's worker was told to stop and must end before the attempt."""
        told_at = [
            self._draining_since.get(member.device, at) for member in attempt.segment.members
        ]
        if at - min(told_at) <= ENDLESS_GRACE:
            return False
        ends = engine.epoch_ends(attempt)
        if ends is None or ends > min(told_at) + DRAIN_GRACE:
            return True
        return at > ends + max(ENDLESS_GRACE, ends - attempt.began)


def _round_trip(attempt: Attempt, survey: Survey) -> float:
    """Return the longest round trip of the attempt's workers to the broker, in seconds."""
    names = [member.device for member in attempt.segment.members]
    return max(survey.devices[name].round_trip if name in survey.devices else 0.0 for name in names)


def _unpublished(seen: AttemptStatus | None, fence: int, age: float) -> str | None:
    if seen is None or seen.fence is None:
        return "the broker has lost its fence" if age > PUBLISH_TIMEOUT else None
    if seen.fence < fence:
        return "its task was never published" if age > PUBLISH_TIMEOUT else None
    return "it was fenced off" if seen.fence > fence else None


def _devices(survey: Survey, state: EngineState, at: float, *, blind: bool) -> Iterator[Event]:
    for name, joined_device in list(state.devices.items()):
        if name not in survey.devices:
            if not blind:
                # A draining device was told to stop. Any other missing device died or cannot be
                # reached.
                stopped = joined_device.draining or name in survey.stopped
                reason = STOPPED if stopped else f"{name} stopped answering"
                yield DeviceLeft(at=at, device=name, reason=reason)
        elif survey.devices[name].draining and not joined_device.draining:
            yield DeviceDraining(at=at, device=name)
    for name, live in survey.devices.items():
        joined = state.devices.get(name)
        if live.draining:
            continue
        if joined is None or joined.incarnation != live.incarnation or joined.draining:
            yield DeviceJoined(at=at, device=live.device, incarnation=live.incarnation)
