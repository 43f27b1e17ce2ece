"""Which devices cannot work for a study, by what they announced when they joined.

Theory of operation. A device cannot if it is unable to start trainers in the study's environment,
or if an extension has a reason. A device that cannot is one that refuses the study, and for the
same reason that its worker would give: so no trial is sent there to find it out. What an
environment lacks on a node (its folder, its program, its Penstock) is known to the worker alone,
which refuses the first trial. A refusal lasts until the device joins again or the study is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...profiling.devices.device import Device
from ..model.environment import obstacle
from ..state.core import Core
from ..state.state import StudyState


def exclude_unable(core: Core, study: StudyState, devices: Iterable[Device]) -> None:
    """Have those of ``devices`` refuse the study that cannot work for it."""
    spec = study.spec
    for device in devices:
        why = obstacle(spec.environment, device) or core.extensions.refusal(spec, device)
        if why:
            study.refused[device.name] = why
