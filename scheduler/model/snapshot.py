"""The immutable snapshot that a policy is given, and the plan that it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...profiling.costs.throughput import Shape

#: Seconds for which a user's policy is not asked again after it has failed.
POLICY_BACKOFF = 60.0


class WidthPlan(NamedTuple):
    """A width plan: the next ``epochs`` epochs run on ``wide`` devices, later ones on ``narrow``.

    If ``epochs`` is 0, all epochs run on ``narrow`` devices.
    """

    narrow: int
    wide: int
    epochs: int


class WindowPlan(NamedTuple):
    """A width window: ``widths`` to measure in order, in at most the time of ``epochs`` epochs.

    ``lasts``: True if the window continues even when other trials wait for its devices.
    """

    widths: tuple[int, ...]
    epochs: float
    lasts: bool = False


def steady(width: int) -> WidthPlan:
    """Return the width plan with all epochs on ``width`` devices."""
    return WidthPlan(width, width, 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trial that waits or runs, as a policy sees it.

    ``level`` and ``shape`` are cautious estimates of costs: they promise only sure gains of wider
    widths. ``likely`` and ``hope`` are estimates of the same form as ``shape``: the first is less
    cautious, the second is optimistic.
    """

    #: The trial's id.
    trial: str
    #: The id of its study.
    study: str
    #: The last accepted epoch.
    epoch: int
    #: The epoch that it is to reach; at least ``epoch + 1``.
    target: int
    #: Time at which it last began to wait (the runner's clock).
    since: float
    #: Expected seconds of one of its epochs: at its last width, or on one device before its first
    #: segment. None if no epoch of its study was measured.
    epoch_seconds: float | None = None
    #: The number of devices it runs or last ran on; 0 before its first segment.
    width: int = 0
    #: The most devices it may run on.
    widest: int = 1
    #: (width, seconds per epoch), as measured in its study.
    speeds: tuple[tuple[int, float], ...] = ()
    #: Expected seconds per epoch on one device; None if no epoch of its study was measured.
    level: float | None = None
    #: (width, expected seconds of an epoch divided by those on one device), for every width that
    #: the trial may have.
    shape: Shape = ((1, 1.0),)
    #: The standard deviation of the logarithm of ``level``.
    deviation: float = 0.0
    #: Expected seconds until its current epoch ends; 0 if it does not run, or if that is not known.
    boundary: float = 0.0
    #: Its width plan under the standing plan; None if it has none.
    course: WidthPlan | None = None
    #: The promotion probability, from 0 to 1 (``scheduler.strategies.promotion``); 1 if its
    #: strategy promotes no trials.
    promise: float = 1.0
    #: The optimistic estimate of ``shape``.
    hope: Shape = ()
    #: The estimate of ``shape`` that also expects gains at widths at which no trial of its study
    #: was measured.
    likely: Shape = ()
    #: The widths at which the trial itself was measured.
    measured: tuple[int, ...] = ()
    #: The widest width of its last width window, without those that ``cut_windows`` counts; 0
    #: before the first.
    window: int = 0
    #: The number of its width windows that were cut before they had measured two widths.
    cut_windows: int = 0
    #: The number of epochs that its study is expected to train from now on.
    ahead: int = 0
    #: True if it runs a width window now, which trains none of its epochs.
    measuring: bool = False
    #: True if its study may have further width windows.
    measurable: bool = True
    #: Time at which its study was submitted (the runner's clock). This and the fields below have
    #: their defaults unless the policy orders the trials of all studies.
    arrived: float = 0.0
    #: Its study's priority. The highest priority goes first.
    priority: int = 0
    #: Time by which its study should have ended (the runner's clock).
    deadline: float = math.inf
    #: Seconds that it has waited for a slot since it last got a target.
    waited: float = 0.0
    #: The device time of its accepted epochs (device-seconds).
    service: float = 0.0
    #: True if it can continue from its current epoch on any device.
    movable: bool = True
    #: True if it has a seat in a lane but no turns there for now. ``waited`` includes this time.
    suspended: bool = False

    @property
    def seconds(self) -> float | None:
        """Expected seconds of training up to its target; None if ``epoch_seconds`` is None."""
        if self.epoch_seconds is None:
            return None
        return self.epoch_seconds * (self.target - self.epoch)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The trials and devices that a policy plans.

    Trials are in order of arrival. Trials that arrived at the same moment are in the order of the
    previous plan, so that a stable sort keeps that order. If a policy is to order these trials
    differently, it must sort by a key that tells them apart.
    """

    #: The time of the snapshot (the runner's clock).
    at: float
    #: Trials that wait, in order of arrival.
    waiting: tuple[Candidate, ...]
    #: The number of free slots that these trials may have.
    free_slots: int
    #: Trials that run, in order of arrival.
    running: tuple[Candidate, ...] = ()
    #: The number of devices whose slots are all free, less one for each trial that shares a device
    #: with an earlier trial. If studies have shares: the study's share less the devices that it
    #: holds, which is below 0 if it holds more than its share.
    free_devices: int = 0
    #: The number of usable devices; if studies have shares, the study's share of them.
    devices: int = 0
    #: The cost of changing a trial's width (seconds).
    resize: float = 0.0
    #: ``Plan.rule`` of the standing plan.
    rule: str = ""
    #: ``Plan.deadline`` of the standing plan (the runner's clock).
    deadline: float = 0.0
    #: True if the strategies of all these trials decide by their results which trials are trained
    #: further (rungs, intervals of ``pbt``).
    staged: bool = False
    #: The number of ``running`` trials whose lane already had a resident, so that they take no lane
    #: of their own.
    beside: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy's answer: the order in which trials get slots, and the width of each trial.

    A trial with a width plan (``courses``) starts at its wide or its narrow width, and at no width
    in between. A new plan is made when the wide part of a width plan ends.
    """

    #: The ids of all waiting trials, in the order in which they get slots that become free.
    order: tuple[str, ...] = ()
    #: The number of devices that a trial uses from its next epoch on, by the trial's id; 1 for a
    #: trial that is absent. If fewer devices are free, the trial gets the free ones.
    widths: dict[str, int] = field(default_factory=dict)
    #: True if slots that become free are kept for the first waiting trial until it can have its
    #: narrow width.
    patient: bool = False
    #: Width plans, by the trial's id.
    courses: dict[str, WidthPlan] = field(default_factory=dict)
    #: The widths to measure before a trial's next epoch, by the trial's id. If too few devices are
    #: free at that time, fewer widths or none are measured.
    windows: dict[str, WindowPlan] = field(default_factory=dict)
    #: A note of the policy for itself, which it finds in its next snapshot.
    rule: str = ""
    #: A time (the runner's clock) that the policy notes for itself in the same way.
    deadline: float = 0.0
    #: Running trials that go back to the queue when their epoch ends, if any trial waits.
    hold: tuple[str, ...] = ()
    #: True if a device with several slots may hold as many trials as its memory allows, whatever
    #: their total speed. A trial that fits nowhere is overtaken unless ``patient``.
    packed: bool = False
    #: Time until which the order is valid if no input of the plan changes (the runner's clock).
    until: float = math.inf


def find_fault(snapshot: Snapshot, plan: Plan) -> str:
    """Return the reason, for the user, why ``plan`` is impossible; empty if it is possible."""
    waiting = {each.trial: 0 for each in snapshot.waiting}
    for trial in plan.order:
        if trial not in waiting:
            return f"has {trial} in its order, which does not wait"
        waiting[trial] += 1
    for trial, count in waiting.items():
        if count != 1:
            complaint = "left {} out of its order" if count == 0 else "put {} twice in its order"
            return complaint.format(trial)
    widths = [*plan.widths.items()]
    for trial, width_plan in plan.courses.items():
        widths += [(trial, width_plan.narrow), (trial, width_plan.wide)]
        if width_plan.epochs < 0:
            return f"gave {trial} a course of {width_plan.epochs} epochs"
    for trial, window in plan.windows.items():
        widths += [(trial, width) for width in window.widths]
        if window.widths[:1] != (1,) or not 0 < window.epochs < math.inf:
            return f"gave {trial} a {window}, which does not begin with one device, or never ends"
    running = {each.trial for each in snapshot.running}
    for trial in plan.hold:
        if trial not in running:
            return f"holds {trial}, which does not run"
    return _width_fault(snapshot, widths)


def _width_fault(snapshot: Snapshot, planned: Sequence[tuple[str, int]]) -> str:
    widest = {each.trial: each.widest for each in (*snapshot.running, *snapshot.waiting)}
    for trial, width in planned:
        if trial not in widest:
            return f"planned for {trial}, which neither waits nor runs"
        if not 1 <= width <= max(1, widest[trial]):
            return f"gave {trial} {width} devices, where 1 to {widest[trial]} are allowed"
    return ""


Policy = Callable[[Snapshot], Plan]
