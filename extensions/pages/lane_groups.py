"""Lists the lanes in which several trials run now, and tells how the trials share each lane.

A lane is a process that trains several trials. The trials take turns or are trained together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...scheduler.model.study import study_of_trial

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import Work
    from ...scheduler.model.events import EpochReported
    from ...scheduler.state.state import DeviceRecord

#: The most lanes that a page lists.
LISTED = 32


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Two or more trials that run in one lane of ``device``, in the order of their seats."""

    device: str
    lane: int
    works: tuple[Work, ...]
    #: The size of the fused group in the newest epoch of these trials that has ended; 1 if the
    #: trials take turns.
    together: int = 1
    #: The number of trials for which the batches of that epoch were read once.
    readers: int = 0

    @property
    def trials(self) -> list[str]:
        """The trials as text, each as study and number."""
        return [f"{work.study}/{work.number}" for work in self.works]

    @property
    def words(self) -> str:
        """A part of a sentence that says how the trials share the lane."""
        if self.together > 1:
            return f"trained together, {self.together} at once in the last epoch"
        if self.readers > 1:
            return f"take turns; batches were read once for {self.readers} in the last epoch"
        return "take turns"


def lane_groups(
    reader: Reader,
    devices: Iterable[DeviceRecord],
    running: Mapping[tuple[str, int], Work],
    study: str | None = None,
) -> list[LaneGroup]:
    """Return the lanes in which several trials run now.

    ``running`` has the trial in each slot, by device and slot. If ``study`` is given, only lanes in
    which a trial of that study runs are returned. At most ``LISTED`` lanes are returned.
    """
    groups = []
    for (device, lane), works in _by_lane(devices, running).items():
        if study is None or any(study_of_trial(work.trial) == study for work in works):
            reports = [reader.last_report(work.trial) for work in works]
            groups.append(lane_group(device, lane, works, [each for each in reports if each]))
        if len(groups) == LISTED:
            break
    return groups


def lane_group(
    device: str, lane: int, works: Sequence[Work], reports: Iterable[EpochReported]
) -> LaneGroup:
    """Return the group of the trials ``works`` that run in a lane.

    The newest of ``reports`` shows how the trials share the lane.
    """
    last = max(reports, key=lambda each: each.at, default=None)
    if last is None:
        return LaneGroup(device, lane, tuple(works))
    readers = 0 if last.together else last.readers  # else those of other lanes
    return LaneGroup(device, lane, tuple(works), last.together, readers)


def _by_lane(
    devices: Iterable[DeviceRecord], running: Mapping[tuple[str, int], Work]
) -> dict[tuple[str, int], list[Work]]:
    several = {each.device.name: each.device for each in devices if each.device.seats > 1}
    works_of: defaultdict[tuple[str, int], list[Work]] = defaultdict(list)
    for (name, slot), work in sorted(running.items()):
        if name in several:
            works_of[name, several[name].lane(slot)].append(work)
    return {lane: works for lane, works in works_of.items() if len(works) > 1}
