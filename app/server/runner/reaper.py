"""Compare the broker with the engine's state to find lost attempts and new or missing devices.

An attempt (one dispatch of a segment) counts as lost

- if its fence (the attempt's number) is missing on the broker, because the broker lost its data, or
  because the scheduler died after the ledger's commit and before it published the task;
- if no worker has claimed the attempt in time, because the message was lost or the worker hangs (a
  worker with a long round trip to the broker gets more time);
- if its lease (the time for which a worker may hold a slot without a sign of life) has expired,
  because the worker died or was stopped; or
- if it is marked as done and its last report has not arrived.

Leases expire on the broker's clock, so the clocks of workers do not matter. If a live attempt is
declared lost, work is repeated, but no result is wrong: the trial gets a new fence, and reports
under the old fence are refused.

A worker that was told to stop waits for its attempts to end. If an attempt will not end soon, the
attempt is given up at once, so that the worker can leave.
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

#: Seconds after a dispatch in which its fence must be on the broker. The runner publishes the fence
#: in the turn that commits the dispatch, so a short time is enough.
PUBLISH_TIMEOUT = 0.2
#: The number of round trips to the broker that a worker may need before it claims a segment. The
#: duration of the round trips is added to the time limit for the claim. Celery makes most of these
#: round trips after the device is registered, when it begins to read the device's queues.
CLAIM_TRIPS = 40
#: Seconds in which the last report of an attempt must arrive once the attempt is marked as done.
REPORT_TIMEOUT = 10.0
#: Seconds that replace ``DRAIN_GRACE`` for an attempt that will not end soon. The end is not near
#: if no epoch of the trial was measured yet, if an epoch takes longer than ``DRAIN_GRACE``, or if
#: the current epoch has taken twice the usual time.
ENDLESS_GRACE = 2.0
ENDLESS = "its worker was told to stop, and the end of what ran there was not in sight"
#: The reason noted for a device that left after it had announced that it takes no more segments.
STOPPED = "its worker was stopped"


class Reaper:
    """A comparison of the broker's state with the engine's, with an event for each difference.

    The only state is the time since when each attempt has been done, and the time since when each
    device has been draining.
    """

    def __init__(self, claim_timeout: float) -> None:
        """Create a reaper that knows no attempts and no devices yet.

        ``claim_timeout`` is the number of seconds in which a worker must claim an attempt. The time
        for the worker's round trips to the broker is added.
        """
        self._claim_timeout = claim_timeout
        self._done_since: dict[int, float] = {}
        self._draining_since: dict[str, float] = {}

    def findings(
        self, survey: Survey, engine: Engine, at: float, *, blind: bool = False
    ) -> Iterator[Event]:
        """Yield an event for each difference between the broker's and the engine's state.

        ``survey`` is the broker's state. ``blind`` is True shortly after an outage of the broker.
        Workers could not renew their keys during the outage, so an expired key does not prove that
        its worker is gone. A key that never expires still counts as lost if it is missing.
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
        """Return True if the attempt must be given up because its worker was told to stop.

        The attempt is given up if it is not expected to end within ``DRAIN_GRACE`` after the worker
        was told, or if the attempt is far later than expected.
        """
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
    """Return the longest round trip, in seconds, from a worker of the attempt to the broker."""
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
