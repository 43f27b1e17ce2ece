"""Checks an installation for ``penstock doctor``: what is there, what is missing, what to do.

The checks start none of Penstock's services.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata, util
from typing import TYPE_CHECKING, Literal

from ...app.broker import connection, fitness, presence, protocol, server
from ...app.broker import installation as store
from ...app.broker.dropped import counted
from ...app.broker.ownership import (
    BrokerTaken,
    check_free,
    last_served_by,
    other_owner_error,
    served_by,
)
from ...app.extensions import of_ends
from ...app.host import locks, logs
from ...app.host.broker_url import key_at
from ...app.host.devices import machine
from ...app.host.permissions import unusable
from ...app.host.settings import PREFIX, Settings
from ...app.host.stopped import stop_of, stop_words, stopped_services
from ...app.server.services import services
from ...base.errors import (
    BackendError,
    LedgerDamaged,
    LedgerRefused,
    PenstockError,
    UsageError,
)
from ...base.urls import hide_password
from ...profiling.counters.capabilities import Capability, capabilities
from ...profiling.counters.energy import open_meters
from ...profiling.devices.discovery import find_devices
from ...profiling.devices.nvml import NoNvml, open_nvml

if TYPE_CHECKING:
    import redis

#: The free space of the state folder, in bytes, below which the doctor warns.
MIN_FREE_SPACE = 1 << 30

#: Seconds that a new Python process may take for its start and the check of forking.
FORK_SERVER_TIMEOUT = 60.0

#: The most misplaced keys that the doctor reports.
SHOWN = 5

Grade = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    ``what`` says what the check found. ``advice`` says what to do if something is wrong.
    """

    name: str
    grade: Grade
    what: str
    advice: str = ""


def diagnose(settings: Settings) -> list[Finding]:
    """Check everything that a study needs, in the order in which a study needs it.

    Problems are returned as findings, not raised. If the broker does not answer, each check of the
    broker takes 5 s; if the store does not answer, its check takes 20 s.
    """
    looks: tuple[tuple[str, Callable[[Settings], Iterator[Finding]]], ...] = (
        ("Python", _python),
        ("torch", _torch),
        ("trainers", _trainers),
        ("environments", _of_extensions),
        ("state folder", _home),
        ("devices", _devices),
        ("counters", _counters),
        ("energy", _energy),
        ("broker", _broker),
        ("services", _services),
        ("ledger", _ledger),
        ("checkpoint store", _store),
    )
    findings: list[Finding] = []
    for name, examine in looks:
        try:
            findings += examine(settings)
        except (PenstockError, OSError, subprocess.TimeoutExpired) as error:
            # The error for another version's ledger already says what to do.
            advice = "" if isinstance(error, LedgerRefused) else _ADVICE.get(name, "")
            findings.append(Finding(name, "fail", str(error), advice))
    return findings


_ADVICE = {
    "state folder": f"set {PREFIX}HOME to a folder that you can write",
    "devices": f"set {PREFIX}DEVICES or --devices to what this machine has",
    "broker": f"start it, or correct {PREFIX}BROKER; unset it for a private broker",
    "ledger": f"correct {PREFIX}LEDGER, or give this user access to it",
    "checkpoint store": f"make it reachable, or set {PREFIX}STORE to one that every node reaches",
}


def _python(_: Settings) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("Python", "ok", f"{version} ({sys.executable})")


def _torch(_: Settings) -> Iterator[Finding]:
    # Searched, not imported, because importing takes seconds.
    if util.find_spec("torch") is None:
        advice = "pip install torch; objectives that need no torch run without it"
        yield Finding("torch", "warn", "not installed", advice)
    else:
        yield Finding("torch", "ok", metadata.version("torch"))


def _trainers(_: Settings) -> Iterator[Finding]:
    """Check in a new Python process whether trainers can be forked from a process that has torch.

    A process that has threads must not be forked, and some installations of Python start threads.
    """
    code = "from penstock.tasks.process.forking import unsafe; print(unsafe())"
    command = [sys.executable, "-P", "-c", code]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=FORK_SERVER_TIMEOUT
    )
    reason = run.stdout.strip() if run.returncode == 0 else (run.stderr.splitlines() or ["?"])[-1]
    if not reason:
        yield Finding("trainers", "ok", "are forked by a process that has imported torch")
        return
    problem = f"start as new programs, and each imports torch again: {reason}"
    advice = "see what this Python starts by itself: its sitecustomize and .pth files"
    yield Finding("trainers", "warn", problem, advice)


def _of_extensions(_: Settings) -> Iterator[Finding]:
    """Yield a finding for each extension that reports something about this node."""
    for finding in of_ends("node", "finding"):
        name, words = finding()
        yield Finding(name, "ok", words)


def _home(settings: Settings) -> Iterator[Finding]:
    folder = settings.home
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    facts = f"{settings.home}, {free / (1 << 30):.1f} GiB free"
    if folder != settings.home:
        # Check without creating: the doctor leaves nothing behind.
        if not os.access(folder, os.W_OK | os.X_OK):
            yield Finding(
                "state folder", "fail", f"{facts}; cannot be made", _ADVICE["state folder"]
            )
            return
        facts += "; created at the first run"
    else:
        if (open_to := settings.close_home()) is not None:
            yield Finding(
                "state folder", "warn", open_to, f"look through {folder} for what is not yours"
            )
            return
        settings.ensure_home()
    if free < MIN_FREE_SPACE:
        yield Finding("state folder", "warn", facts, "make room: checkpoints will not fit")
    else:
        yield Finding("state folder", "ok", facts)


def _devices(settings: Settings) -> Iterator[Finding]:
    nvml = open_nvml()
    if isinstance(nvml, NoNvml):
        yield Finding("GPUs", "ok", f"none: {nvml.reason}")
    else:
        names = ", ".join(nvml.name(index) for index in range(nvml.count()))
        yield Finding("GPUs", "ok", names or "none: the driver sees none")
    device_list = machine(settings, nvml)
    devices = find_devices(settings.devices, device_list)
    names = ", ".join(device.name for device in devices)
    yield Finding("devices", "ok", f"{device_list}; {settings.devices} means {names}")


def _counters(_: Settings) -> Iterator[Finding]:
    """Yield a finding for each source of counters: how many counters can be measured.

    Missing counters are no fault, since no study needs them.
    """
    by_source: dict[str, list[Capability]] = defaultdict(list)
    for capability in capabilities(_gpus()):
        by_source[capability.source].append(capability)
    for source, of_source in by_source.items():
        absent: dict[str, list[str]] = defaultdict(list)
        for capability in of_source:
            if not capability.measured:
                absent[capability.reason].append(capability.counter)
        words = f"{sum(one.measured for one in of_source)} of {len(of_source)}"
        for reason, names in absent.items():
            first_names = ", ".join(names[:3]) + (
                f" and {len(names) - 3} more" if names[3:] else ""
            )
            words += f"; without {first_names}: {reason}"
        yield Finding(f"counters: {source}", "ok", words)


def _energy(settings: Settings) -> Iterator[Finding]:
    meters, missing = open_meters(time.monotonic(), _gpus(), powercap=settings.powercap)
    read = ", ".join(meter.name for meter in meters) or "not measured"
    reasons = "".join(f"; {name}: {reason}" for name, reason in missing.items())
    yield Finding("energy", "ok", read + reasons)


def _gpus() -> list[str]:
    nvml = open_nvml()
    return [nvml.uuid(index) for index in range(nvml.count())]


def _broker(settings: Settings) -> Iterator[Finding]:
    if settings.broker is not None:
        with server.connect(settings) as client:
            words = f"{hide_password(settings.broker)} answers; it is named by"
            yield Finding("broker", "ok", f"{words} {settings.broker_origin}")
            try:
                fitness.check(client, settings.broker)
            except connection.BrokerUnfit as error:
                yield Finding("broker", "fail", str(error))
                return
            if settings.broker.startswith("sentinel:"):
                yield from _sentinels(client, settings.broker)
            yield from _owner(client, settings)
            yield from _persistence(client, settings.broker)
            yield from _eviction(client, settings.broker)
            yield from _contents(client, settings.broker)
        return
    if (unused := settings.unused_broker) is not None:
        yield Finding("broker", "ok", unused)
    binary = server.program(settings)
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    if version.returncode:
        words = version.stderr.strip()
        yield Finding("broker", "fail", f"{binary} does not run: {words}", _ADVICE["broker"])
        return
    words = f"private, {' '.join(version.stdout.split()[:3])} ({binary})"
    if _stopped(settings, server.NAME):
        return  # that finding is among the services'
    if locks.is_running(settings.run, server.NAME):
        with server.connect(settings) as client:
            yield Finding("broker", "ok", f"{words}: answers")
            yield from _eviction(client, server.broker_url(settings))
            yield from _contents(client, server.broker_url(settings))
    else:
        yield Finding("broker", "ok", f"{words}: is not running (it is started when needed)")
    for aside in server.unreadable(settings):
        problem = f"a log that it could not read was moved to {aside}"
        yield Finding("broker", "warn", problem, "nothing is lost; remove the folder when you like")


def _owner(client: redis.Redis, settings: Settings) -> Iterator[Finding]:
    """Yield a finding if the broker serves, or last served, another state folder's scheduler."""
    assert settings.broker is not None
    if (holder := served_by(settings, client)) is not None:
        words = f"the scheduler of {holder} serves it, and gets the studies of this state folder"
        yield Finding("broker's scheduler", "ok", words)
    elif (last := last_served_by(settings, client)) is not None:
        words = str(other_owner_error(settings.broker, last))
        yield Finding("broker's scheduler", "fail", words)


def _persistence(client: redis.Redis, url: str) -> Iterator[Finding]:
    """Yield a finding if the user's own broker loses its keys when it is restarted."""
    if fitness.forgets(client, url):
        advice = (
            "CONFIG SET appendonly yes. Without it a restart of the broker loses queued work, which"
            " the scheduler sends again from the ledger, and studies wait for that"
        )
        yield Finding("broker's disk", "warn", fitness.FORGETS, advice)


def _sentinels(client: redis.Redis, url: str) -> Iterator[Finding]:
    """Yield a finding on the primary server, and one on each thing that would hinder a failover."""
    from ...app.broker import sentinels

    with connection.translate_errors(url):
        words, amiss = sentinels.described(client)
    yield Finding("broker's sentinels", "ok", words)
    for each in amiss:
        yield Finding("broker's sentinels", "warn", each, "a failover may not come about")


def _eviction(client: redis.Redis, url: str) -> Iterator[Finding]:
    """Yield a finding if the broker removes keys at its memory limit, or would with a limit."""
    policy, limit = connection.eviction_policy(client, url)
    if policy != connection.NO_EVICTION:
        removes = f"keys are removed at maxmemory = {limit} bytes; no scheduler starts"
        effect = removes if limit else "no key is removed, as long as maxmemory is 0"
        grade: Grade = "fail" if limit else "warn"
        words = f"maxmemory-policy {policy}: {effect}"
        yield Finding("broker's memory", grade, words, connection.EVICTION_ADVICE)


def _contents(client: redis.Redis, url: str) -> Iterator[Finding]:
    """Yield findings on keys of the wrong type in the broker, and on messages that were dropped."""
    with connection.translate_errors(url):
        misplaced = protocol.misplaced(client)
        if protocol.INSTALLATION not in misplaced:
            key = protocol.command(client, "HGET", protocol.INSTALLATION, "key")
            if key is not None and presence.key_of(key) is None:
                misplaced[protocol.INSTALLATION] = "its signing key is damaged"
    for name, words in list(misplaced.items())[:SHOWN]:
        key_words = f"{key_at(url, name)}: {words}"
        yield Finding("broker's keys", "fail", key_words, connection.MISPLACED_ADVICE)
    dropped = counted(client, url)
    if dropped:
        key = shlex.quote(key_at(url, protocol.DROPPED))
        summary = ", ".join(
            f"{n} of {location} ({check})" for (location, check), n in dropped.items()
        )
        advice = (
            "none of your results are lost; the log of the process that dropped them has"
            f" details. Something else writes to this broker. `redis-cli DEL {key}`"
            " resets the counts"
        )
        yield Finding("dropped messages", "warn", summary, advice)


def _services(settings: Settings) -> Iterator[Finding]:
    desired = services.desired_state(settings)
    should_run = {service.name for service in desired.services} if desired else set()
    for name, pid, stop in stopped_services(settings.run):
        yield Finding(name, "fail", stop_words(name, pid, stop))
    changing = locks.pid_of(settings.run, services.CHANGE)
    if changing is not None and (held_up := stop_of(changing)) is not None:
        problem = f"process {changing}, which was starting or stopping them, {held_up}"
        advice = f"nothing is restarted until it goes on (`kill -CONT {changing}`) or is ended"
        yield Finding("services", "fail", problem, advice)
    statuses = services.statuses(settings)
    for name in (services.CHANGE, *(status.name for status in statuses)):
        try:
            locks.check(settings.run, name)
        except OSError as error:  # a service that is restarted could only log this
            yield Finding(name, "fail", unusable(error, settings.home) or str(error))
    for status in statuses:
        if status.name == server.NAME or _stopped(settings, status.name):
            continue
        if status.pid is not None:
            trouble = _trouble(settings, status.name)
            problem = f"runs (process {status.pid})"
            if trouble is None:
                yield Finding(status.name, "ok", problem)
            else:
                yield Finding(status.name, "fail", f"{problem} and cannot serve: {trouble}")
        elif status.name in should_run:
            words = logs.tail(status.log, lines=3)
            problem = f"should be running but is not; its log ends with: {words or 'none'}"
            yield Finding(status.name, "fail", problem, f"read {status.log}, then `penstock up`")
        else:
            yield Finding(status.name, "ok", "not running (it is started when needed)")


def _stopped(settings: Settings, service: str) -> bool:
    """Return True if the process of a service is stopped, for example by SIGSTOP."""
    pid = locks.pid_of(settings.run, service)
    return pid is not None and stop_of(pid) is not None


def _trouble(settings: Settings, service: str) -> str | None:
    """Return the reason why a running service does not serve.

    Return None if the service serves, or if the broker does not answer.
    """
    url = server.broker_url(settings)
    try:
        if service == "scheduler":
            services.check_same_broker(settings)
        with server.connect(settings) as client:
            if service == "agent":
                return presence.ending(client, url)
            if service != "scheduler":
                return None
            check_free(settings, client)
            return presence.trouble(client, url)
    except (BrokerTaken, UsageError) as error:
        return str(error)
    except BackendError:
        return None  # that finding is the broker's


def _ledger(settings: Settings) -> Iterator[Finding]:
    from ...app.ledger.databases.open import database_at
    from ...app.ledger.reader import Reader
    from ...app.server.services.backups import GONE_ADVICE, is_ledger_gone
    from ...app.server.services.ledger_location import elsewhere

    url = hide_password(settings.ledger_url)
    if settings.ledger is not None:
        database_at(settings.ledger).check()
    reader = Reader(settings.ledger_url)
    try:
        if reader.is_empty():
            if is_ledger_gone(settings):
                yield Finding(
                    "ledger", "fail", f"{url} is missing, though there was one", GONE_ADVICE
                )
                return
            words = f"{url}; created at the first run"
            with suppress(BackendError):  # that finding is the broker's
                words = elsewhere(settings) or words
            yield Finding("ledger", "ok", words)
            return
        count = sum(reader.statuses().values())
    except LedgerDamaged as error:
        yield Finding("ledger", "fail", str(error), "`penstock down`, then `penstock restore`")
        return
    except PenstockError:
        raise
    except Exception as error:  # whatever the database's library raises
        problem = f"{url} cannot be read: {type(error).__name__}"
        yield Finding("ledger", "fail", problem, _ADVICE["ledger"])
        return
    yield Finding("ledger", "ok", f"{url}: {count} {'study' if count == 1 else 'studies'}")


def _store(settings: Settings) -> Iterator[Finding]:
    """Check the store in use, and that these settings name the same store as the scheduler's."""
    name, configured = "checkpoint store", hide_password(settings.store_url)
    installation, is_serving = _installation(settings)
    # A node that is given only a broker learns its store from the broker.
    joins = settings.store is None and settings.broker is not None
    if installation is not None and (is_serving or joins):
        store.check(installation.store, installation.key)
        url = hide_password(installation.store)
        if joins or installation.store == settings.store_url:
            yield Finding(name, "ok", f"{url}: usable")
        else:
            words = f"{url}: usable, and in use; these settings say {configured}"
            advice = f"run `penstock down`, then `penstock up` with the right {PREFIX}STORE"
            yield Finding(name, "warn", words, advice)
    elif store.probe(settings.store_url):
        yield Finding(name, "ok", f"{configured}: usable")
    else:
        yield Finding(name, "ok", f"{configured}; created at the first run")


def _installation(settings: Settings) -> tuple[presence.Installation | None, bool]:
    """Return the installation that the broker describes, and True if a scheduler serves it now."""
    if settings.broker is None and not locks.is_running(settings.run, server.NAME):
        return None, False
    url = server.broker_url(settings)
    with server.connect(settings) as client:
        return presence.fetch_installation(client, url), presence.is_served(client, url)
