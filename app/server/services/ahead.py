"""Start services, and imports for trainers, while a script still imports its own libraries.

The script's imports take seconds, and its trainers will need the same libraries. So the launcher
process imports the libraries at the same time. On more than two cores, broker, scheduler and agent
start at the same time, too. On two cores they would slow down both imports. There, a forked process
waits until the launcher process has finished its imports, and starts the services then.

Nobody has asked for these services yet, which ``DesiredState.ahead`` records. When the script asks
for services, ``ensure_up`` takes them over, or replaces them if the script wants other devices or
settings. If nobody has asked for the services when the script ends, the services and the launcher
process are ended.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from ....base.errors import PenstockError
from ....profiling.devices.device import Device
from ....tasks.contracts.import_names import imported_names
from ....tasks.process.forking import fork_twice, unsafe
from ....tasks.trainer.variables import PRELOAD
from ...broker import server
from ...host import locks
from ...host.devices import devices_of
from ...host.settings import Settings
from ...node.launching import client as launching
from ...node.launching.variables import environment, worker_environment
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

#: The number of cores up to which services wait until the launcher process has finished its
#: imports.
FEW_CORES = 2


@contextmanager
def services_ahead(settings: Settings, script: Path) -> Iterator[None]:
    """Start the services that ``script`` will need, while the ``with`` block runs the script.

    Nothing is started if the services run already, or if the user has chosen a broker, ledger or
    store, because these must be checked first. Errors are ignored here, because the script meets
    the same errors when it asks for the services.
    """
    has_own_urls = {settings.broker, settings.ledger, settings.store} != {None}
    begun, waiting = False, None
    with suppress(PenstockError, OSError, ImportError):
        if not has_own_urls and settings.preload != "nothing" and desired_state(settings) is None:
            settings.ensure_home()
            begun = True
            sys.stderr.write(f"starting broker, scheduler and workers for {script.name}\n")
            waiting = _start(settings, script)
    try:
        yield
    finally:
        if waiting is not None:
            os.close(waiting)
        if begun:
            end_unasked(settings)


def _start(settings: Settings, script: Path) -> int | None:
    """Start the launcher process now, and the services now or later.

    Returns a descriptor if the services start later. Closing the descriptor cancels that start.
    Returns None otherwise. Raises the same errors as ``ensure_up``.
    """
    with locks.hold(settings.run, CHANGE, wait=True):
        if desired_state(settings) is not None:
            return None
        _import_ahead(settings, devices_of(settings)[0], script)
        if len(os.sched_getaffinity(0)) > FEW_CORES:
            _start_services(settings)
            return None
    if unsafe():
        return None
    called_off, waiting = os.pipe()
    try:
        if fork_twice() == 0:
            os.close(waiting)
            _wait_and_start(settings, called_off)
    except OSError:
        os.close(waiting)
        raise
    finally:
        os.close(called_off)
    return waiting


def _wait_and_start(settings: Settings, called_off: int) -> NoReturn:
    """Wait until the launcher process has finished its imports, then start the services.

    The function runs in a forked process. ``called_off`` becomes readable if the start is
    cancelled.
    """
    try:
        os.setsid()  # Ctrl-C is for the script
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        with launching.awaiting_imports(settings) as imported:
            select.select([imported.fileno(), called_off], [], [])
        with locks.hold(settings.run, CHANGE, wait=True):
            over = select.select([called_off], [], [], 0.0)[0]
            if not over and desired_state(settings) is None:
                _start_services(settings)
    finally:
        os._exit(0)


def _start_services(settings: Settings) -> None:
    """Start broker, scheduler and agent. The caller holds the lock ``CHANGE``.

    Raises the same errors as ``ensure_up``.
    """
    # Imported here because clients whose services run already need none of it.
    from ..advice.policy_host import check_policy

    check_policy(settings.policy)
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


def _import_ahead(settings: Settings, device: Device, script: Path) -> None:
    """Have the launcher process import the modules that trainers of ``script`` will need.

    The imports take longest, so they start first. ``device`` is one of the devices that will be
    served.
    """
    names = imported_names(script)
    first = ("torch", "objective") if "torch" in names else ("objective",)
    variables = environment(device, worker_environment(settings, device, os.environ))
    launching.ensure(settings, variables | {PRELOAD: ",".join((*first, *names))})


def end_unasked(settings: Settings) -> None:
    """End the services that were started ahead, if no client has asked for them since."""
    with locks.hold(settings.run, CHANGE, wait=True):
        desired = desired_state(settings)
        if desired is not None and desired.ahead is not None:
            end_all(settings, AGENT_GRACE)
        elif desired is None and not locks.is_running(settings.run, "agent"):
            stop_launcher(settings)
