"""Starts services, and imports for trainers, while a script still imports its own libraries.

The script's imports take seconds, and its trainers will need the same libraries. So the launcher
process imports them at the same time. On more than two cores broker, scheduler and agent start at
the same time, too. On two cores they do not: they would hold up both.

Nobody has asked for these services yet, and ``DesiredState.ahead`` says so. ``ensure_up`` takes
them over, or replaces them where it is asked for other devices or settings. ``end_unasked`` ends
them and the launcher process once the script has ended, if nobody has asked for them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ...profiling.devices.device import Device
from ...tasks.contracts.import_names import imported_names
from ...tasks.trainer.variables import PRELOAD
from ..broker import server
from ..host import locks
from ..host.devices import devices_of
from ..host.settings import Settings
from ..launching import client as launching
from ..launching.variables import environment, worker_environment
from .services import (
    AGENT_GRACE,
    CHANGE,
    DesiredState,
    desired_state,
    end_all,
    roster,
    spawn,
    stop_launcher,
    write_desired_state,
)

#: On so many cores, or fewer, no services are started ahead.
FEW_CORES = 2


def start_ahead(settings: Settings, script: Path) -> bool:
    """Start the services for ``script``, which will want them, beside its own imports.

    Does nothing where they run, or where a broker, ledger or store of the user's must be checked.
    Returns whether it has started anything. Raises as ``ensure_up`` does.
    """
    theirs = {settings.broker, settings.ledger, settings.store} != {None}
    if theirs or settings.preload == "nothing" or desired_state(settings) is not None:
        return False
    settings.ensure_home()
    with locks.hold(settings.run, CHANGE, wait=True):
        new = desired_state(settings) is None
        if new:
            # Imported here because the engine's modules take long to import.
            from ..advice.policy_host import check_policy

            check_policy(settings.policy)
            _import_ahead(settings, devices_of(settings)[0], script)
            if len(os.sched_getaffinity(0)) > FEW_CORES:
                server.start(settings)
                desired = DesiredState(
                    settings.devices,
                    roster(settings.devices),
                    time.time(),
                    stays=False,
                    ahead=settings.environment(),
                )
                write_desired_state(settings, desired)
                for service in desired.services:
                    spawn(settings, service)
    return new


def _import_ahead(settings: Settings, device: Device, script: Path) -> None:
    """Have imported what trainers of ``script`` will need. That takes longest, so it begins first.

    ``device`` is one of those that will be served.
    """
    names = imported_names(script)
    first = ("torch", "objective") if "torch" in names else ("objective",)
    variables = environment(device, worker_environment(settings, device, os.environ))
    launching.ensure(settings, variables | {PRELOAD: ",".join((*first, *names))})


def end_unasked(settings: Settings) -> None:
    """End what was started ahead, if nobody has asked for it."""
    with locks.hold(settings.run, CHANGE, wait=True):
        desired = desired_state(settings)
        if desired is not None and desired.ahead is not None:
            end_all(settings, AGENT_GRACE)
        elif desired is None and not locks.is_running(settings.run, "agent"):
            stop_launcher(settings)
