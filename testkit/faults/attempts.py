"""Reads the gangs on the broker and finds the processes of their members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import redis
from penstock.app.broker import protocol
from penstock.app.host import locks
from penstock.app.host.settings import Settings

from testkit.trainers import trainers


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of a gang: its device, the device's node, and the Celery worker's process id.

    ``run`` is the node's folder of locks.
    """

    rank: int
    device: str
    node: str
    worker: int
    run: Path

    def trainer(self) -> psutil.Process:
        """Its trainer's process. Raises psutil.NoSuchProcess if there is none at this moment."""
        for trainer in trainers(self.run, self.device):
            return trainer
        raise psutil.NoSuchProcess(self.worker)


@dataclass(frozen=True, slots=True)
class Gang:
    """An attempt of which several ranks have claimed; ``state`` as in ``protocol``."""

    trial: str
    fence: int
    state: str
    members: tuple[Member, ...]


def gangs(client: redis.Redis, nodes: Mapping[str, Settings], state: str) -> list[Gang]:
    """The gangs in ``state``, with the ranks that have claimed; their leases and workers live.

    Running gangs have two or more ranks. In a gang that waits for its ranks, none may have claimed
    yet; such a gang may have a single rank. ``nodes`` are the settings of each node by name.
    """
    pipeline = client.pipeline(transaction=False)
    pipeline.hgetall(protocol.DEVICES)
    pipeline.keys(protocol.attempt_key("*"))
    pipeline.keys(protocol.lease_key("*", 0).removesuffix("0") + "*")
    devices, attempts, leases = pipeline.execute()
    for key in attempts:
        pipeline.hgetall(key)
    stored = pipeline.execute()
    owners: dict[str, Any] = dict(zip(leases, client.mget(leases), strict=True)) if leases else {}
    serving = {json.loads(record)["incarnation"]: name for name, record in devices.items()}
    found = []
    for key, fields in sorted(zip(attempts, stored, strict=True), key=lambda pair: pair[0]):
        trial = key.removeprefix(protocol.attempt_key(""))
        ranks = sorted(int(name[5:]) for name in fields if name.startswith("owner"))
        members = []
        for rank in ranks:
            owner = fields[f"owner{rank}"]
            device = serving.get(owner.partition(".")[0])
            if device is not None and owners.get(protocol.lease_key(trial, rank)) == owner:
                members.append(member_of(nodes, rank, device))
        alive = tuple(member for member in members if member is not None)
        least = 2 if state == "running" else 0
        if fields.get("state") == state and len(alive) == len(ranks) >= least:
            found.append(Gang(trial, int(fields["fence"]), state, alive))
    return found


def member_of(nodes: Mapping[str, Settings], rank: int, device: str) -> Member | None:
    """The member that serves ``device`` now; None if there is none."""
    node = device.split(".")[1]
    run = nodes[node].run
    pid = locks.pid_of(run, f"device-{device}")
    return None if pid is None else Member(rank, device, node, pid, run)
