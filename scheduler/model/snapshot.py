"""The immutable snapshot that a policy is given, and the plan that it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...profiling.costs.throughput import Shape

#: Seconds for which a user's policy that failed is not asked again.
POLICY_BACKOFF = 60.0


class WidthPlan(NamedTuple):
    """A width plan: ``epochs`` epochs on ``wide`` devices, and the rest on ``narrow`` ones.

    With ``epochs`` 0, all epochs run on ``narrow`` devices.
    """

    narrow: int
    wide: int
    epochs: int


class WindowPlan(NamedTuple):
    """A width window: ``widths`` to measure in order, in at most the time of ``epochs`` epochs.

    ``lasts`` is True if the window continues even when other trials wait for its devices.
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

    Costs that were not measured are estimated in several ways: ``level`` and ``shape`` are
    cautious, ``likely`` is less so, and ``hope`` is optimistic.
    """

    #: The trial's id.
    trial: str
    #: The id of its study.
    study: str
    #: The number of its accepted epochs.
    epoch: int
    #: The epoch that it is to reach.
    target: int
    #: Time at which it last began to wait (the runner's clock).
    since: float
    #: Expected seconds of one of its epochs; None if nothing of its study was measured.
    epoch_seconds: float | None = None
    #: The number of devices it runs or last ran on; 0 before its first segment.
    width: int = 0
    #: The most devices it may run on.
    widest: int = 1
    #: Pairs (width, seconds per epoch), as measured in its study.
    speeds: tuple[tuple[int, float], ...] = ()
    #: Seconds per epoch on one device; None if unknown.
    level: float | None = None
    #: The relative seconds of an epoch, for every width that it may have.
    shape: Shape = ((1, 1.0),)
    #: The standard deviation of the logarithm of ``level``.
    deviation: float = 0.0
    #: Expected seconds until its current epoch ends.
    boundary: float = 0.0
    #: Its width plan under the standing plan.
    course: WidthPlan | None = None
    #: Promotion probability, from 0 to 1; 1 if its study has no rungs
    #: (``scheduler.strategies.promotion``).
    promise: float = 1.0
    #: The optimistic estimate of ``shape``.
    hope: Shape = ()
    #: The estimate that also has gains at widths at which nothing of its study was measured.
    likely: Shape = ()
    #: The widths at which it was measured itself.
    measured: tuple[int, ...] = ()
    #: The widest width of its last window; 0 before the first.
    window: int = 0
    #: The number of its windows that were cut before they had measured two widths.
    cut_windows: int = 0
    #: The number of epochs that its study is expected to train from now on.
    ahead: int = 0
    #: True if its devices only measure widths, and none of its epochs is at work there.
    measuring: bool = False
    #: True if widths of its study can be measured in windows.
    measurable: bool = True
    #: Time at which its study was submitted (the runner's clock). This and the fields below have
    #: their defaults unless the policy orders the trials of all studies.
    arrived: float = 0.0
    #: Its study's priority. The highest goes first.
    priority: int = 0
    #: Time at which its study should have ended (the runner's clock).
    deadline: float = math.inf
    #: Time it has waited for a slot since it was entered (seconds).
    waited: float = 0.0
    #: The device time of its accepted epochs (device-seconds).
    service: float = 0.0
    #: True if it can continue from its current epoch on any device.
    movable: bool = True
    #: True if it runs, but has no turns in its lane for now. ``waited`` grows meanwhile.
    suspended: bool = False

    @property
    def seconds(self) -> float | None:
        """Expected seconds of work up to its target; None if nothing was measured."""
        if self.epoch_seconds is None:
            return None
        return self.epoch_seconds * (self.target - self.epoch)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The trials and devices that a policy plans.

    Trials are in order of arrival. Trials that arrived at the same moment are in the order of the
    previous plan, so that a stable sort keeps that order. A policy that wants another order among
    them must sort by a key of its own.
    """

    #: The time of the snapshot (the runner's clock).
    at: float
    #: Trials that wait, in order of arrival.
    waiting: tuple[Candidate, ...]
    #: The number of free slots.
    free_slots: int
    #: Trials that run, in order of arrival.
    running: tuple[Candidate, ...] = ()
    #: The number of devices with only free slots; below 0 if a study holds more than its share.
    free_devices: int = 0
    #: The number of devices that may be used in all.
    devices: int = 0
    #: The cost of changing a trial's width (seconds).
    resize: float = 0.0
    #: ``Plan.rule`` of the standing plan.
    rule: str = ""
    #: ``Plan.deadline`` of the standing plan (the runner's clock).
    deadline: float = 0.0
    #: True if later work depends on the results of these trials (rungs, intervals of ``pbt``).
    staged: bool = False
    #: The number of ``running`` trials that share the lane of another trial, so that they have no
    #: slot of their own.
    beside: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy's answer: the order in which trials get slots, and the devices each trial uses.

    A trial with a width plan (``courses``) starts on its wide or on its narrow number of devices,
    and on no number in between. The plan is made again when the wide part of a width plan ends.
    """

    #: The ids of all waiting trials, in the order in which they get slots that become free.
    order: tuple[str, ...] = ()
    #: The number of devices that a trial uses from its next epoch on, by the trial's id. A trial
    #: that is absent uses 1 device. If fewer devices are free, the trial gets these.
    widths: dict[str, int] = field(default_factory=dict)
    #: True to keep slots that become free for the first waiting trial until it can have its narrow
    #: width.
    patient: bool = False
    #: Width plans, by trial.
    courses: dict[str, WidthPlan] = field(default_factory=dict)
    #: The widths to measure before a trial's next epoch, by the trial's id. If too few devices are
    #: free at that time, fewer widths or none are measured.
    windows: dict[str, WindowPlan] = field(default_factory=dict)
    #: The policy's own note for its next plan.
    rule: str = ""
    #: A time that the policy notes for its next plan (the runner's clock).
    deadline: float = 0.0
    #: Running trials that go back to the queue when their epoch ends, if any trial waits.
    hold: tuple[str, ...] = ()
    #: True to let a device with several slots hold as many trials as its memory allows, whatever
    #: their total speed. A trial that fits nowhere is overtaken unless ``patient``.
    packed: bool = False
    #: The time until which the order holds if nothing happens (the runner's clock).
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
