"""Why a study does not get on, in one sentence: what ``status`` and all who watch it say.

Theory of operation. What is known is gathered by ``app.status.lookout`` and judged here, by a pure
function. It looks for the first thing on the way of a trial that is not as it has to be: broker,
scheduler, devices, attempts, the line for a slot. The text holds no counts and no times that change
from look to look, so that who prints it can tell whether it has said it already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..runner.reaper import DRAIN_GRACE

if TYPE_CHECKING:
    from ...scheduler.state.state import DeviceRecord
    from ..ledger.rows import StudyRow, Work

#: So many attempts in a row that came to nothing are no accident.
AGAIN = 2
#: So many names of studies are listed.
NAMED = 3


@dataclass(frozen=True, slots=True)
class Setback:
    """An attempt that came to nothing through no failure of the user's code that is shown.

    ``refused``: its node cannot run the study as it is. ``log`` is the end of its trainer's log,
    where that is on this machine.
    """

    reason: str
    refused: bool = False
    log: str = ""


@dataclass(frozen=True, slots=True)
class Services:
    """What is seen of the services; each text is empty where all is well.

    ``broker``: why it does not answer, or takes nothing. ``scheduler``: whether one is there, and
    ``trouble``: what keeps it from serving. ``agent``: why this machine's devices are not served,
    where they should be, or why workers do not stay. ``leaving``: devices whose workers were told
    to stop.
    """

    broker: str = ""
    scheduler: bool = True
    trouble: str = ""
    agent: str = ""
    leaving: Collection[str] = ()


def why_waiting(
    study: StudyRow,
    devices: Sequence[DeviceRecord],
    running: Mapping[tuple[str, int], Work],
    setbacks: Sequence[Setback],
    services: Services,
) -> str | None:
    """What has to be done, or awaited, for ``study`` to get on; None where it does.

    ``running`` is what is at work, of all studies; ``setbacks`` the study's own since anything of
    it came to something, newest first.
    """
    if study.finished_at is not None:
        return None
    if words := _held(study) or _unserved(services):
        return words
    there = [record for record in devices if not record.gone]
    at_work = any(work.study == study.name for work in running.values())
    if not at_work and (words := _untaken(devices, there, setbacks, services)):
        return words
    if len(setbacks) >= AGAIN:
        log = f" (its log ends: {setbacks[0].log})" if setbacks[0].log else ""
        return f"attempt after attempt comes to nothing: {setbacks[0].reason}{log}"
    return None if at_work else _in_use(there, running)


def _held(study: StudyRow) -> str:
    """What its user has to do; empty where nothing."""
    if study.status == "paused":
        return f"it is paused and goes on with: penstock resume {study.id}"
    if study.contract == "ask":
        return "it is open for ask() and tell(); study.close() ends it"
    return ""


def _unserved(services: Services) -> str:
    """Why nobody would send its trials anywhere; empty where somebody does."""
    if services.broker:
        return services.broker
    if services.trouble:
        return f"the scheduler cannot serve: {services.trouble}"
    if not services.scheduler:
        return "no scheduler is running: the study goes on when one does (penstock up)"
    return ""


def _untaken(
    devices: Sequence[DeviceRecord],
    there: Sequence[DeviceRecord],
    setbacks: Sequence[Setback],
    services: Services,
) -> str:
    """Why no device takes any of its trials; empty where one may."""
    if there and setbacks and setbacks[0].refused:
        return (
            f"no device takes it: {setbacks[0].reason}. Mend that, and start the worker anew"
            " (penstock down, penstock up)"
        )
    return _unusable(there, services) if there else _absent(devices, services)


def _absent(devices: Sequence[DeviceRecord], services: Services) -> str:
    """Why none is there."""
    if services.agent:
        return f"no device serves: {services.agent}"
    if not devices:
        return "no device has joined yet: penstock up, or penstock worker, starts some"
    left = max(devices, key=lambda record: record.at)
    return (
        f"no device serves: {left.device.name} left ({left.reason}); penstock up, or penstock"
        " worker on another machine, starts some"
    )


def _unusable(there: Sequence[DeviceRecord], services: Services) -> str:
    """Why none of them takes anything; empty where one does, or only rests."""
    if {record.device.name for record in there} <= {*services.leaving}:
        return (
            f"the services were told to stop and are draining, for up to {DRAIN_GRACE:g} s;"
            " the study goes on when they are back"
        )
    if {record.state for record in there} <= {"drained", "draining"}:
        return "every device is drained: penstock devices undrain NAME gives one back"
    return ""


def _in_use(there: Sequence[DeviceRecord], running: Mapping[tuple[str, int], Work]) -> str | None:
    """That others have all devices, and who; None where one is free."""
    free = {record.device.name for record in there if record.state == "joined"}
    free -= {device for device, _ in running}
    if free:
        return None
    if not running:
        return "no device may be used: they rest after losses in a row"
    studies = sorted({work.study for work in running.values()})
    more = " and others" if len(studies) > NAMED else ""
    return (
        f"it waits for a device: all are at work for {', '.join(studies[:NAMED])}{more};"
        " penstock plan shows the line"
    )
