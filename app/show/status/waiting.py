"""Say in one sentence why a study makes no progress, for ``status`` and for watchers.

Theory of operation. ``app.show.status.stall_monitor`` collects the facts, and ``why_waiting``, a
pure function, judges them. The function follows the way of a trial: broker, scheduler, devices,
attempts, the queue for a slot. The function reports the first fault on this way. The sentence
contains no counts or times that change between two checks. So a caller can tell whether the
sentence was already shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...common.ports import DRAIN_GRACE
from ...common.text import in_shell
from ...extensions import of_ends

if TYPE_CHECKING:
    from ....profiling.devices.device import Device
    from ....scheduler.state.state import DeviceRecord
    from ...ledger.rows import StudyRow, Work

#: The number of failed attempts in a row at which the failures are reported. Fewer may be
#: accidents.
AGAIN = 2
#: The largest number of studies that a message names.
NAMED = 3


@dataclass(frozen=True, slots=True)
class Setback:
    """An attempt that failed for another reason than a failure of user code.

    A failure of user code is shown elsewhere. ``reason`` says why the attempt failed. ``refused``
    is True if the attempt's node cannot run the study as it is. ``log`` is the last line of the
    trainer's log. It is empty if the log is not on this machine.
    """

    reason: str
    #: The number of the attempt's trial.
    trial: int
    refused: bool = False
    log: str = ""


@dataclass(frozen=True, slots=True)
class Services:
    """The state of the services. Each text is empty if there is nothing to report."""

    #: A message about a service on this machine that somebody has stopped.
    stopped: str = ""
    #: The reason why the broker does not answer or does not accept writes.
    broker: str = ""
    #: True if a scheduler serves the broker.
    scheduler: bool = True
    #: The reason why the scheduler cannot serve.
    trouble: str = ""
    #: The reason why the devices of this machine are not served although they should be, or why
    #: workers end.
    agent: str = ""
    #: The names of devices whose workers were told to stop.
    leaving: Collection[str] = ()
    #: Devices that workers announced. The devices of workers that have gone may be included.
    announced: Collection[Device] = ()


def why_waiting(
    study: StudyRow,
    devices: Sequence[DeviceRecord],
    running: Mapping[tuple[str, int], Work],
    setbacks: Sequence[Setback],
    services: Services,
) -> str | None:
    """Return the reason why ``study`` makes no progress, or None if it makes progress.

    ``devices`` contains all devices that ever joined. ``running`` contains the running trials of
    all studies, by device and slot. ``setbacks`` contains the failed attempts of the study since
    its last success, newest first.
    """
    if study.finished_at is not None:
        return None
    if words := _held(study) or _unserved(services):
        return words
    present = [record for record in devices if not record.gone]
    at_work = any(work.study == study.name for work in running.values())
    if not at_work and (words := _untaken(study, devices, present, setbacks, services)):
        return words
    if len(setbacks) >= AGAIN:
        log = f" (its log ends: {setbacks[0].log})" if setbacks[0].log else ""
        return f"{_whose(setbacks)} failed and are tried again: {setbacks[0].reason}{log}"
    return None if at_work else _in_use(present, running)


def _whose(setbacks: Sequence[Setback]) -> str:
    """Return words for the failed attempts.

    The words contain the trial's number if all attempts are of the same trial.
    """
    if len({each.trial for each in setbacks}) > 1:
        return "the last attempts of several trials"
    return f"the last attempts of trial {setbacks[0].trial}"


def _held(study: StudyRow) -> str:
    """Return a message that tells the user how to continue or to end the study.

    The result is empty if the study does not wait for its user.
    """
    if study.status == "paused":
        return f"it is paused: continue it with `penstock resume {in_shell(study.name, study.id)}`"
    if study.contract == "ask":
        return "it is open for ask() and tell(); study.close() ends it"
    return ""


def _unserved(services: Services) -> str:
    """Return the reason why the services cannot run trials. The result is empty if they can."""
    if services.stopped:
        return f"it stands still: {services.stopped}"
    if services.broker:
        return services.broker
    if services.trouble:
        return f"the scheduler cannot serve: {services.trouble}"
    if not services.scheduler:
        return "no scheduler is running: start one with `penstock up`"
    return ""


def _untaken(
    study: StudyRow,
    devices: Sequence[DeviceRecord],
    present: Sequence[DeviceRecord],
    setbacks: Sequence[Setback],
    services: Services,
) -> str:
    """Return the reason why no device accepts a trial of the study.

    ``present`` contains the devices that are not gone. The result is empty if a device may accept a
    trial.
    """
    if present and setbacks and setbacks[0].refused:
        typed = in_shell(study.name, study.id)
        return (
            f"no device accepts it: {setbacks[0].reason}. Fix that, then pause and resume the"
            f" study (penstock pause {typed}, penstock resume {typed}) or restart the worker"
        )
    names = {record.device.name for record in present}
    candidates = [device for device in services.announced if device.name in names]
    lacking = {_obstacle(study, device) for device in candidates}
    if lacking and "" not in lacking:
        return f"no device accepts it: {min(lacking)}. Fix that, and restart the worker"
    return _unusable(present, services) if present else _absent(devices, services)


def _obstacle(study: StudyRow, device: Device) -> str:
    """Return the reason why an extension keeps the study from the device.

    The result is empty if no extension does.
    """
    reasons = (obstacle(study, device) for obstacle in of_ends("show", "obstacle"))
    return next(filter(None, reasons), "")


def _absent(devices: Sequence[DeviceRecord], services: Services) -> str:
    """Return the reason why no device is present."""
    if services.agent:
        return f"no device serves: {services.agent}"
    if not devices:
        return "no device has joined yet: start workers with `penstock up` or `penstock worker`"
    last = max(devices, key=lambda record: record.at)
    return (
        f"no device serves: {last.device.name} left ({last.reason}). Start workers with"
        " `penstock up`, or `penstock worker` on another machine"
    )


def _unusable(present: Sequence[DeviceRecord], services: Services) -> str:
    """Return the reason why none of the devices in ``present`` can be used.

    The result is empty if a device can be used or is only resting.
    """
    if {record.device.name for record in present} <= {*services.leaving}:
        return (
            f"the services are stopping, which takes up to {DRAIN_GRACE:g} s; the study"
            " continues when they run again"
        )
    if {record.state for record in present} <= {"drained", "draining"}:
        return "every device is drained: return one with `penstock devices undrain NAME`"
    return ""


def _in_use(present: Sequence[DeviceRecord], running: Mapping[tuple[str, int], Work]) -> str | None:
    """Return a message that names the studies on all devices, or None if a device is free."""
    free = {record.device.name for record in present if record.state == "joined"}
    free -= {device for device, _ in running}
    if free:
        return None
    if not running:
        return "no device is used for now: each pauses after it lost several attempts in a row"
    studies = sorted({work.study for work in running.values()})
    more = " and others" if len(studies) > NAMED else ""
    return (
        f"it waits for a device: all are busy with {', '.join(studies[:NAMED])}{more};"
        " `penstock plan` shows the queue"
    )
