"""Finds the ends of the logs that tell why a study makes no progress or why a process died."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...profiling.devices.device import slot_name, with_several_slots
from ..broker import server
from ..host.logs import tail
from ..services import services

if TYPE_CHECKING:
    from ...profiling.devices.device import Device
    from ..host.settings import Settings
    from ..ledger.rows import StudyRow, TrialRow

#: The number of last lines of each log.
LINES = 6


def failure_logs(
    settings: Settings,
    study: StudyRow,
    trials: Sequence[TrialRow],
    devices: Iterable[Device],
) -> Iterator[tuple[str, str]]:
    """What is wrong, with the end of the log that tells of it; each log once.

    Services count while the study runs. Logs on other machines are not visible here.
    """
    desired = None if study.finished_at is not None else services.desired_state(settings)
    needed = {server.NAME, *(service.name for service in desired.services)} if desired else set()
    for status in services.statuses(settings):
        if status.pid is None and status.name in needed and (words := tail(status.log, LINES)):
            yield f"{status.name} should be running but is not; {status.log} ends with", words
    died = {(t.device, t.slot) for t in trials if t.failure_kind == "died" and t.device}
    known = {device.name: device for device in devices}
    several = with_several_slots(known.values())
    for name, slot in sorted(died):
        device = known.get(name)
        first = slot if device is None else device.lane(slot) * device.seats
        log = settings.logs / f"trainer-{name}.s{first}.log"
        if words := tail(log, LINES):
            where = slot_name(name, slot, several)
            yield f"a trainer died on {where}; {log} ends now with", words
