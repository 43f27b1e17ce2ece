"""Start, check and stop the services of a state folder: broker, scheduler and node agent.

Theory of operation. A file holds the desired state: while ``<run>/up.json`` exists, the services
named in it should run, each with the command line given there. A service runs if its lock is held
(``app.host.locks``). A ``Supervisor`` (``app.server.services.supervisor``) in the scheduler, in the
agent and in a watching client restarts each service that was killed. If two supervisors start a
service at once, the service's own lock lets only one of the two processes run.

All code that changes the desired state, or acts on it, holds one more lock (``CHANGE``). So a
supervisor cannot start a service that is being stopped. And a scheduler that ends because it is
idle cannot collide with a client that has just made sure that it runs.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from pydantic import TypeAdapter

from ....base.errors import BackendError, UsageError
from ....base.urls import hide_password
from ...broker import installation, presence, server
from ...broker.ownership import check_free, served_by
from ...common.ports import DRAIN_GRACE
from ...host import locks
from ...host.broker_url import OF_CELERY
from ...host.devices import devices_of
from ...host.settings import PREFIX, Settings, shown_of
from ...host.stopped import continue_stopped
from ...node.launching import client as launching

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

#: Seconds that each service may take to end before it is killed. The agent's time is for draining,
#: and is longer than the time that the agent gives its workers.
AGENT_GRACE = 35.0
SCHEDULER_GRACE = 10.0
FLOWER_GRACE = 5.0
LAUNCHER_GRACE = 3.0

#: The name of the node agent as a service.
AGENT = "agent"
#: The name of the lock that a process holds while it changes the desired state or acts on it.
CHANGE = "services"
#: The command that runs Penstock. With -P, Python imports no file of the working directory in place
#: of a library.
_PENSTOCK = (sys.executable, "-P", "-m", "penstock")
#: Seconds after which a client that waits for the lock tells its user so.
CHANGE_NOTICE_AFTER = 1.0
#: The settings that a scheduler reads only when it starts.
READ_AT_START = {
    "policy", "store", "ledger", "lease_ms", "claim_timeout", "log_limit", "log_age",
    "backups", "backup_every", "prices", "notify",
}  # fmt: skip
#: Seconds that ``penstock up`` waits until the scheduler serves the broker or says why it does not.
START_REPORT_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Service:
    """A process that Penstock keeps running. ``name`` is also the name of its lock and its log."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The services that should run, and the devices that the agent serves.

    ``at`` is the time (seconds since 1970) at which a client last asked for the services. ``stays``
    is True if ``penstock up`` asked for the services. Such services are not ended when they are
    idle.
    """

    devices: str
    services: tuple[Service, ...]
    at: float
    stays: bool
    #: The settings with which the services were started, if no client has asked for them yet
    #: (``services.ahead``). None otherwise.
    ahead: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a service.

    ``pid`` is None if the service does not run, and ``log`` is its log file.
    """

    name: str
    pid: int | None
    log: Path


def roster(devices: str) -> tuple[Service, ...]:
    """Return the scheduler and the agent as services. The broker has a module of its own."""
    return (Service("scheduler", (*_PENSTOCK, "scheduler")), agent_of(devices))


def agent_of(devices: str) -> Service:
    """Return the agent as a service, for a machine whose scheduler runs elsewhere."""
    return Service(AGENT, (*_PENSTOCK, "worker", "--devices", devices))


def ensure_up(
    settings: Settings,
    devices: str | None = None,
    *,
    stays: bool = False,
    services: Sequence[Service] | None = None,
) -> DesiredState:
    """Make sure that broker, scheduler and agent run, and stay up until taken down or idle.

    ``devices`` is the specification of the devices to serve. If ``devices`` is None, a running
    agent keeps its devices, and a new agent serves those of the settings. ``services``, if given,
    are started with the broker instead of scheduler and agent. ``stays`` is True if idle services
    must not be ended.

    Everything is checked before anything is started. Raises UsageError if the state folder cannot
    be used, if the policy does not exist, or if devices or settings differ from those of the
    running services. Raises BackendError if another scheduler serves the broker, or if the
    checkpoint store (after 20 s), a chosen ledger (10 s) or the broker (5 s) does not answer.
    """
    settings.ensure_home()
    installation.probe(settings.store_url)
    if settings.ledger is not None:
        from ...ledger.databases.open import database_at

        database_at(settings.ledger).check()
    continue_stopped(settings.run)
    _report_change(settings)
    with locks.hold(settings.run, CHANGE, wait=True):
        current = desired_state(settings)
        before = _asked_for(settings, current, devices)
        _check_same(settings)
        if not locks.is_running(settings.run, "scheduler"):
            _check_policy(settings.policy)
        spec = _devices(settings, devices, before)
        service_list = tuple(services) if services is not None else roster(spec)
        if services is None and not stays and _is_served_by_hand(settings, before):
            service_list = tuple(service for service in service_list if service.name != AGENT)
        desired = DesiredState(
            devices=spec,
            services=service_list,
            at=time.time(),
            stays=stays or (before is not None and before.stays),
        )
        if settings.broker is None:
            server.start(settings)
        else:
            with server.connect(settings) as client:
                if services is None:
                    check_free(settings, client)
                if current is None:
                    _report_forgetting(client, settings.broker)
        write_desired_state(settings, desired)
        for service in desired.services:
            spawn(settings, service)
    if current is None or current.ahead is not None:  # else the user was told before
        _report_unused_broker(settings)
    return desired


def _asked_for(
    settings: Settings, before: DesiredState | None, devices: str | None
) -> DesiredState | None:
    """Return the desired state ``before``, unless its services were started ahead and do not fit.

    Services that do not fit have other devices or settings than the caller asks for. Such services
    are ended, and None is returned.
    """
    if before is None or before.ahead is None:
        return before
    other = devices is not None and devices != before.devices
    if other or before.ahead != settings.environment():
        for name, grace in ((AGENT, AGENT_GRACE), ("scheduler", SCHEDULER_GRACE)):
            locks.stop(settings.run, name, grace=grace)
        stop_launcher(settings)
        return None
    return before


def _is_served_by_hand(settings: Settings, before: DesiredState | None) -> bool:
    """Return True if an agent runs that Penstock has not started as a service.

    Such an agent is ``penstock worker`` in a terminal, or a worker of the user's Celery app. The
    user of such an agent decides how long the agent serves, and on which devices.
    """
    is_own = before is not None and any(service.name == AGENT for service in before.services)
    return not is_own and locks.is_running(settings.run, AGENT)


def _report_change(settings: Settings) -> None:
    """Tell the user if another process holds the lock ``CHANGE`` and does not release it soon."""
    if not locks.wait_gone(settings.run, CHANGE, CHANGE_NOTICE_AFTER):
        sys.stderr.write(
            "another process is starting or stopping the services, which takes up to"
            f" {DRAIN_GRACE:g} s: waiting for it\n"
        )


def _report_unused_broker(settings: Settings) -> None:
    """Tell the user if Celery's own variable names a broker that Penstock does not use."""
    if (words := settings.unused_broker) is not None:
        sys.stderr.write(f"{words}\n")


def _report_forgetting(client: redis.Redis, url: str) -> None:
    """Tell the user if the broker at ``url``, which the user runs, stores nothing on its disk."""
    from ...broker.fitness import FORGETS, forgets

    if forgets(client, url):
        sys.stderr.write(f"the broker at {hide_password(url)}: {FORGETS}\n")


def _check_policy(policy: str) -> None:
    # Imported here because the engine's modules take long to import and few clients need them.
    from ..advice.policy_host import check_policy

    check_policy(policy)


def startup_trouble(settings: Settings) -> str | None:
    """Return the reason that the scheduler gives for not serving the broker.

    Returns None if the scheduler serves the broker, or gives no reason in time.
    """
    url, begun = server.broker_url(settings), time.monotonic()
    with server.connect(settings) as client:
        while (past := time.monotonic() - begun) < START_REPORT_TIMEOUT and not presence.is_served(
            client, url
        ):
            if (words := presence.trouble(client, url, within=past)) is not None:
                return words
            time.sleep(0.05)
    return None


def is_served_by_others(settings: Settings) -> bool:
    """Return True if a scheduler that an operator runs serves the broker.

    Penstock must then start no services. Raises BackendError if a chosen broker does not answer.
    """
    if settings.broker is None:
        return False
    with server.connect(settings) as client:
        if desired_state(settings) is None:
            return presence.is_served(client, settings.broker)
        return served_by(settings, client) is not None


def scheduler_answers(settings: Settings) -> bool:
    """Return True if a scheduler runs: this state folder's own, or one that an operator runs."""
    if locks.is_running(settings.run, "scheduler"):
        return True
    try:
        return is_served_by_others(settings)
    except BackendError:
        return False


def _check_same(settings: Settings) -> None:
    """Raise UsageError if the settings differ from those of the running scheduler.

    The scheduler reads these settings only at its start, so other values would have no effect.
    """
    if (environ := _environment_of_scheduler(settings)) is None:
        return
    _check_broker(settings, environ)
    for field in READ_AT_START & settings.model_fields_set:
        name, current = f"{PREFIX}{field.upper()}", Settings.model_fields[field].default
        if name in environ:  # the scheduler's form of the value, a URL in place of a path
            current = getattr(Settings.model_validate({field: environ[name]}), field)
        value = getattr(settings, field)
        if value != current:
            raise UsageError.refuse(
                name,
                shown_of(field, str(value)),
                f"{shown_of(field, str(current))}, as the running services have it; to change it,"
                " run `penstock down` first",
            )


def check_same_broker(settings: Settings) -> None:
    """Raise UsageError if this state folder's scheduler runs and has another broker."""
    if (environ := _environment_of_scheduler(settings)) is not None:
        _check_broker(settings, environ)


def _check_broker(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise UsageError if the scheduler with the variables ``environ`` has another broker."""
    name = f"{PREFIX}BROKER"
    url = environ.get(name) or None
    if url == OF_CELERY or (url is None and f"{PREFIX}CELERY_APP" in environ):
        return  # the scheduler was started by hand, and has asked a Celery app for the URL
    current = Settings.model_validate({"broker": url}).broker
    if current != settings.broker:
        own, other = (hide_password(each or "a private one") for each in (settings.broker, current))
        raise UsageError(
            f"the running services of this state folder have another broker, {other}; here it is"
            f" {own}. Export the {name} or {PREFIX}CELERY_APP that they were started with, or run"
            " `penstock down` there first",
            name,
        )


def _environment_of_scheduler(settings: Settings) -> Mapping[str, str] | None:
    """Return the environment variables of the running scheduler.

    Returns None if no scheduler runs here, or if it belongs to another user.
    """
    pid = locks.pid_of(settings.run, "scheduler")
    if pid is None:
        return None
    try:
        return psutil.Process(pid).environ()
    except psutil.Error:  # the process has just ended or belongs to another user
        return None


def desired_state(settings: Settings) -> DesiredState | None:
    """Return the services that should run in this state folder, or None if none should run."""
    try:
        return _adapter().validate_json(_file(settings).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        # We write the file completely or not at all, so someone else has changed it.
        log.warning("%s is unreadable and counts as absent: %s", _file(settings), error)
        return None


@cache
def _adapter() -> TypeAdapter[DesiredState]:
    return TypeAdapter(DesiredState)


def statuses(settings: Settings) -> tuple[Status, ...]:
    """Return the current states of the private broker (if there is one), scheduler and agent."""
    names = ("scheduler", AGENT) if settings.broker else (server.NAME, "scheduler", AGENT)
    return tuple(
        Status(name, locks.pid_of(settings.run, name), settings.logs / f"{name}.log")
        for name in names
    )


def take_down(settings: Settings, *, grace: float = AGENT_GRACE) -> list[str]:
    """Drain the agent, then stop scheduler, Flower and private broker.

    Returns the names of the services that were running. Running trials stop at the end of their
    epoch, within ``grace`` seconds. Studies are not cancelled: they continue after the next
    ``ensure_up``. Raises UsageError if the state folder belongs to another user.
    """
    settings.check_home()
    with locks.hold(settings.run, CHANGE, wait=True):
        return end_all(settings, grace)


def end_all(settings: Settings, grace: float) -> list[str]:
    """End the services that ``take_down`` ends, and return the names of those that were running.

    The caller holds the lock ``CHANGE``. The agent may take ``grace`` seconds.
    """
    _file(settings).unlink(missing_ok=True)
    names = [
        name
        for name, timeout in (
            (AGENT, grace),
            ("scheduler", SCHEDULER_GRACE),
            ("flower", FLOWER_GRACE),
        )
        if locks.stop(settings.run, name, grace=timeout)
    ]
    stop_launcher(settings)
    return names + _stop_broker(settings)


def stop_if_idle(settings: Settings, idle_since: float) -> bool:
    """Stop all services but the scheduler if they were idle for ``Settings.idle_stop`` seconds.

    The scheduler calls this function, and ends itself if the result is True. ``idle_since`` is in
    seconds since 1970. Services that should stay up, and agents that Penstock did not start, are
    not stopped.
    """
    with suppress(UsageError), locks.hold(settings.run, CHANGE):
        desired = desired_state(settings)
        # A clock set back must not keep services up for ever.
        now = time.time()
        if desired is None or desired.stays:
            return False
        if now - max(idle_since, min(desired.at, now)) < settings.idle_stop:
            return False
        _file(settings).unlink(missing_ok=True)
        if any(service.name == AGENT for service in desired.services):
            locks.stop(settings.run, AGENT, grace=AGENT_GRACE)
        _stop_broker(settings)
        return True
    return False  # another process holds the lock and changes the services


def _devices(settings: Settings, asked: str | None, before: DesiredState | None) -> str:
    if asked is None and "devices" in settings.model_fields_set:
        asked = settings.devices
    current = before.devices if before is not None else settings.devices
    spec = current if asked is None else asked
    devices_of(settings, spec)
    if before is not None and spec != before.devices and locks.is_running(settings.run, AGENT):
        raise UsageError.refuse(
            "devices",
            spec,
            f"{before.devices}, as the running services have it; to change it, run `penstock"
            " down` first",
        )
    return spec


def spawn(settings: Settings, service: Service) -> None:
    """Start ``service`` unless it runs already."""
    locks.spawn_service(
        settings.run,
        service.name,
        service.argv,
        env={**os.environ, **settings.environment()},
        log=settings.logs / f"{service.name}.log",
        cwd=settings.home,
    )


def stop_launcher(settings: Settings) -> None:
    """Stop the launcher process if it runs.

    An agent stops its launcher process, too, but not if the agent was asked to end before it was
    up.
    """
    launching.stop(settings, LAUNCHER_GRACE)


def _stop_broker(settings: Settings) -> list[str]:
    if settings.broker is not None or not locks.is_running(settings.run, server.NAME):
        return []
    server.stop(settings)
    return [server.NAME]


def _file(settings: Settings) -> Path:
    return settings.run / "up.json"


def write_desired_state(settings: Settings, desired: DesiredState) -> None:
    """Replace the desired state of this state folder. The caller holds the lock ``CHANGE``."""
    temporary = _file(settings).with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(asdict(desired)))
    temporary.replace(_file(settings))
