"""Faults on the checkpoints of gangs: a store that refuses, a full disk, a byte that changed.

Those that keep checkpoints from being written count once one has failed so; a changed one counts
when no trainer had its trial in memory any more.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Protocol

import psutil
import sqlalchemy as sa
from penstock.app.ledger.databases.open import database_at
from penstock.app.ledger.databases.tables import DURABLE

from testkit.trainers import trainers

from .attempts import Gang, Member
from .faults import Hit, Kind
from .sites import DISK, Nodes

#: Seconds that the store is away or full, at most until a checkpoint fails, and after that.
UNTIL_FELT, FURTHER = 8.0, 1.5
#: Bytes that are left on a disk that is full: less than any checkpoint has.
LEFT = 16 << 10


class OfGangs(Protocol):
    """The faults of gangs, as far as those on their store ask them."""

    site: Nodes
    rng: Random

    def gangs(self) -> list[Gang]: ...

    def all_serve(self) -> bool: ...


def possible(site: Nodes) -> list[str]:
    """The kinds that this user can carry out."""
    return [name for name in STORE_KINDS if site.disk is not None or name != "disk full"]


def _refuse(faults: OfGangs, kind: str) -> Hit | None:
    """Put a file in the store's place. Half of the time a gang's trainers are killed meanwhile.

    An agent that starts meanwhile gives up, so this waits until no node is on its way back.
    """
    if not faults.all_serve():
        return None
    with _away(Path(faults.site.settings.store_url.removeprefix("file://"))):
        return _felt(faults, kind, kill=faults.rng.random() < 0.5)


def _fill(faults: OfGangs, kind: str) -> Hit | None:
    """Leave less room on the disk than the next checkpoint needs."""
    with _full(faults.site.disk):
        return _felt(faults, kind)


def _felt(faults: OfGangs, kind: str, *, kill: bool = False) -> Hit | None:
    """Wait until a checkpoint has failed; None if none does in time."""
    gangs, at, before = faults.gangs(), time.time(), _failed(faults.site)
    until = time.monotonic() + UNTIL_FELT
    while gangs and time.monotonic() < until:
        if _failed(faults.site) > before:
            time.sleep(FURTHER)
            if kill:
                _kill_all(faults.rng.choice(gangs).members)
            return Hit(at, kind)
        time.sleep(0.05)
    return None


def _corrupt(faults: OfGangs, kind: str) -> Hit | None:
    """Change a byte of a running trial's newest checkpoint, and kill all who have it in memory."""
    gangs = faults.gangs()
    faults.rng.shuffle(gangs)
    for gang in gangs:
        newest = _newest_checkpoint(faults.site, gang.trial)
        if newest is None:
            continue
        trainers = _trainers(faults.site)
        with contextlib.ExitStack() as frozen_ones:
            for trainer in trainers:
                trainer.suspend()
                frozen_ones.callback(_resume, trainer)
            # What was durable when they stopped is known to the ledger soon.
            time.sleep(0.1)
            if gang not in faults.gangs():
                continue
            path = _newest_checkpoint(faults.site, gang.trial)
            content = bytearray(path.read_bytes())
            content[faults.rng.randrange(len(content))] ^= 1
            path.write_bytes(content)
            for trainer in trainers:
                trainer.kill()
            return Hit(time.time(), kind, gang.trial)
    return None


STORE_KINDS: dict[str, Kind] = {
    "store refuses": _refuse,
    "disk full": _fill,
    "checkpoint changed": _corrupt,
}


@contextlib.contextmanager
def _away(store: Path) -> Iterator[None]:
    """Replace the store by a file, so that not even a folder can be created there."""
    aside = store.with_name("aside")
    store.rename(aside)
    store.touch()
    try:
        yield
    finally:
        store.unlink()
        aside.rename(store)


@contextlib.contextmanager
def _full(disk: Path) -> Iterator[None]:
    """Fill the disk up to ``LEFT`` bytes."""
    for _ in range(100):  # what is written meanwhile may need more than was just left
        found = os.statvfs(disk)
        if _resize(disk, (found.f_blocks - found.f_bfree) * found.f_frsize + LEFT):
            break
    try:
        yield
    finally:
        _resize(disk, DISK)


def _resize(disk: Path, size: int) -> bool:
    words = ["mount", "-o", f"remount,size={size}", str(disk)]
    return subprocess.run(words, check=False, capture_output=True).returncode == 0


def _failed(site: Nodes) -> int:
    """Return the number of checkpoints that could not be written, by the trainers' logs."""
    logs = [log for node in site.nodes.values() for log in node.logs.glob("trainer-*.log")]
    return sum(log.read_text(errors="replace").count("checkpoint of ") for log in logs)


def _newest_checkpoint(site: Nodes, trial: str) -> Path | None:
    query = sa.select(DURABLE.c.uri).where(DURABLE.c.trial == trial).order_by(-DURABLE.c.epoch)
    engine = database_at(site.settings.ledger_url).reader()
    with engine.connect() as connection:
        uri = connection.execute(query).scalar()
    return None if uri is None else Path(uri.removeprefix("file://"))


def _trainers(site: Nodes) -> list[psutil.Process]:
    """All trainers of both nodes."""
    found = []
    for settings in site.nodes.values():
        found += trainers(settings.run)
    return found


def _kill_all(members: tuple[Member, ...]) -> None:
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.trainer().kill()


def _resume(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.resume()
