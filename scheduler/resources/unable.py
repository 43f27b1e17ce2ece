"""Devices that cannot work for a study, as judged by what they announced when they joined.

If an extension finds that a device cannot work for a study (``Extension.refusal``), the device is
noted as refusing the study at once, for the same reason that its worker would give. So no trial is
sent there in vain. A refusal lasts until the device joins again or the study is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...profiling.devices.device import Device
from ...profiling.devices.signature import agree
from ..state.core import Core
from ..state.state import StudyState


def try_again(core: Core, study: StudyState) -> None:
    """Forget the devices' refusals of the study, as their nodes may be able to work for it by now.

    Devices that compute under another signature than the study, and devices that extensions exclude
    now, still refuse it.
    """
    for name in list(study.refused):
        if agree(study.machines.get(name, study.signature), study.signature):
            del study.refused[name]
    exclude_unable(core, study, [each.device for each in core.state.devices.values()])


def exclude_unable(core: Core, study: StudyState, devices: Iterable[Device]) -> None:
    """Record which of ``devices`` refuse the study because they cannot work for it."""
    spec = study.spec
    for device in devices:
        if why := core.extensions.refusal(spec, device):
            study.refused[device.name] = why
