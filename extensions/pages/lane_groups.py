"""The trials that share a lane now: those trained together, and those that take turns."""

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

#: The most lanes in the list.
LISTED = 32


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """The trials (two or more) that run in a lane of ``device``, in the order of their seats."""

    device: str
    lane: int
    works: tuple[Work, ...]
    #: Size of the fused group in the newest ended epoch of these trials; 1 if they are not fused.
    together: int = 1
    #: Number of these trials for which the batches of that epoch were read once.
    readers: int = 0

    @property
    def trials(self) -> list[str]:
        """The trials, each as study and number."""
        return [f"{work.study}/{work.number}" for work in self.works]

    @property
    def words(self) -> str:
        """A part of a sentence on how the trials share the lane."""
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
    """Return the lanes with several trials now; if ``study`` is given, only those it runs in."""
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
    """Return the trials ``works`` of a lane; the newest of ``reports`` shows how they share it."""
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
