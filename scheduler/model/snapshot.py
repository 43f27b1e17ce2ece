"""The immutable picture that a policy sees, and the plan that it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ...profiling.costs.throughput import Shape


class Course(NamedTuple):
    """``epochs`` epochs on ``wide`` devices and the rest on ``narrow``; 0 of them: all narrow."""

    narrow: int
    wide: int
    epochs: int


def steady(width: int) -> Course:
    """The course of all epochs on ``width`` devices."""
    return Course(width, width, 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trial after ``epoch`` accepted epochs that waits or runs.

    ``since`` is when it last began to wait. ``width`` is on how many devices it runs or last ran (0
    before its first segment), ``widest`` on how many it may. ``epoch_seconds`` is what one of its
    epochs takes, None where none of its study was measured; ``speeds`` are (width, seconds an
    epoch) as measured in its study. ``level`` is seconds an epoch on one device and ``shape`` how
    that changes with the width, at every width that it may have, both estimated where they were
    not measured: with caution, in ``hope`` with hope. ``deviation`` is the standard deviation of
    the level's logarithm. The epoch that it runs is expected to end in ``boundary`` seconds.
    ``course`` is what the standing plan has in mind for it. ``promise``: the probability that it is
    promoted, 1 where nothing is (``promise``).
    """

    trial: str
    study: str
    epoch: int
    target: int
    since: float
    epoch_seconds: float | None = None
    width: int = 0
    widest: int = 1
    speeds: tuple[tuple[int, float], ...] = ()
    level: float | None = None
    shape: Shape = ((1, 1.0),)
    deviation: float = 0.0
    boundary: float = 0.0
    course: Course | None = None
    promise: float = 1.0
    hope: Shape = ()

    @property
    def seconds(self) -> float | None:
        """Its expected work up to its target; None where nothing was measured."""
        if self.epoch_seconds is None:
            return None
        return self.epoch_seconds * (self.target - self.epoch)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is to plan: trials in order of arrival, free slots, and devices with only such.

    Trials that arrived at the same moment are in the order of the plan before, so that a sort keeps
    it: a policy that wants another one for them has to say by what.

    ``devices`` are all that may be used, ``resize`` is what a resize takes (seconds). ``rule`` and
    ``deadline`` (the runner's clock) are the standing plan's. ``staged``: what follows depends on
    how these trials end (rungs, PBT's intervals).
    """

    at: float
    waiting: tuple[Candidate, ...]
    free_slots: int
    running: tuple[Candidate, ...] = ()
    free_devices: int = 0
    devices: int = 0
    resize: float = 0.0
    rule: str = ""
    deadline: float = 0.0
    staged: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Waiting trials in the order in which they get the slots that become free.

    ``widths`` is on how many devices a trial shall run from its next epoch on; 1 where nothing is
    said. It gets as many of them as are free. ``shuffle``: instead, widths are drawn anew for every
    epoch, and a trial waits until all its devices are free. ``patient``: what becomes free is kept
    for the first that waits until its course's narrow width is there.

    ``courses`` say for how many epochs: a trial begins at the wide or the narrow width of its
    course or not at all, whatever waits behind it, and the plan is made anew when its wide part
    ends. ``rule`` and ``deadline`` (the runner's clock) are the policy's own, for its next plan.
    """

    order: tuple[str, ...] = ()
    widths: dict[str, int] = field(default_factory=dict)
    shuffle: bool = False
    patient: bool = False
    courses: dict[str, Course] = field(default_factory=dict)
    rule: str = ""
    deadline: float = 0.0


def fault(snapshot: Snapshot, plan: Plan) -> str:
    """What is impossible in ``plan``, in words; empty where nothing is."""
    waiting = {each.trial: 0 for each in snapshot.waiting}
    for trial in plan.order:
        if trial not in waiting:
            return f"has {trial} in its order, which does not wait"
        waiting[trial] += 1
    for trial, times in waiting.items():
        if times != 1:
            how = "left {} out of its order" if times == 0 else "put {} twice in its order"
            return how.format(trial)
    widest = {each.trial: each.widest for each in (*snapshot.running, *snapshot.waiting)}
    wanted = [*plan.widths.items()]
    for trial, course in plan.courses.items():
        wanted += [(trial, course.narrow), (trial, course.wide)]
        if course.epochs < 0:
            return f"gave {trial} a course of {course.epochs} epochs"
    for trial, width in wanted:
        if trial not in widest:
            return f"planned for {trial}, which neither waits nor runs"
        if not 1 <= width <= max(1, widest[trial]):
            return f"gave {trial} {width} devices, where 1 to {widest[trial]} are allowed"
    return ""


Policy = Callable[[Snapshot], Plan]
