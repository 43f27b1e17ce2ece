"""Which devices cannot start the trainers of a study, by what they announced when they joined.

Theory of operation. A device that cannot is one that refuses the study, and for the same reason
that its worker would give: so no trial is sent there to find it out. What an environment lacks on a
node (its folder, its program, its Penstock) is known to the worker alone, which refuses the first
trial. A refusal lasts until the device joins again or the study is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...profiling.devices.device import Device
from ..model.environment import obstacle
from ..state.state import StudyState


def exclude_unable(study: StudyState, devices: Iterable[Device]) -> None:
    """Have those of ``devices`` refuse the study that cannot start its environment."""
    for device in devices:
        if why := obstacle(study.spec.environment, device):
            study.refused[device.name] = why
