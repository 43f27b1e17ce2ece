"""Which devices cannot work for a study, by what they announced when they joined.

A device that cannot, as an extension says, is one that refuses the study, and for the same reason
that its worker would give: so no trial is sent there to find it out. A refusal lasts until the
device joins again or the study is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...profiling.devices.device import Device
from ...profiling.devices.signature import agree
from ..state.core import Core
from ..state.state import StudyState


def try_again(core: Core, study: StudyState) -> None:
    """Forget which devices refused the study: their nodes may have what it lacked by now.

    Those that compute under another signature still do.
    """
    for name in list(study.refused):
        if agree(study.machines.get(name, study.signature), study.signature):
            del study.refused[name]
    exclude_unable(core, study, [each.device for each in core.state.devices.values()])


def exclude_unable(core: Core, study: StudyState, devices: Iterable[Device]) -> None:
    """Have those of ``devices`` refuse the study that cannot work for it."""
    spec = study.spec
    for device in devices:
        if why := core.extensions.refusal(spec, device):
            study.refused[device.name] = why
