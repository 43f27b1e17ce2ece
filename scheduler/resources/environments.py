"""Which devices cannot work for a study, by what they announced when they joined.

Theory of operation. A device cannot if it is unable to start trainers in the study's environment,
or if a limit of the study could not hold there: of money without a price, of energy without a
meter. A device that cannot is one that refuses the study, and for the same reason
that its worker would give: so no trial is sent there to find it out. What an environment lacks on a
node (its folder, its program, its Penstock) is known to the worker alone, which refuses the first
trial. A refusal lasts until the device joins again or the study is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...profiling.devices.device import Device
from ..model.environment import obstacle
from ..state.limits import unaccountable
from ..state.state import StudyState


def exclude_unable(
    study: StudyState, devices: Iterable[Device], prices: Mapping[str, float]
) -> None:
    """Have those of ``devices`` refuse the study that cannot work for it."""
    spec = study.spec
    for device in devices:
        if why := obstacle(spec.environment, device) or unaccountable(spec, prices, device):
            study.refused[device.name] = why
