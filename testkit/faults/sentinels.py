"""A primary, its replicas and three sentinels on this machine, for the tests and for failovers.

All are the server that Penstock finds, at free ports of 127.0.0.1, in a folder of their own. Data
servers and sentinels have a password each. A primary may be killed, stopped or demoted; an observer
notes the moment of each ``+switch-master``, the first sentinel's that says it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import redis
from penstock.app.host.broker_program import find_server

HOST, NAME, SENTINELS = "127.0.0.1", "ours", 3
PASSWORD, THEIRS = "s3cret/word", "other@word"  # as hard to put in a URL as a user's may be
#: Seconds that a start or a failover may take.
LIMIT = 120.0
#: Seconds in which the sentinels say one failover. None comes again so soon.
SAME = 5.0


class Switch(NamedTuple):
    """A failover: when the first sentinel said it (seconds since 1970), from port to port."""

    at: float
    old: int
    port: int


class Group:
    """Runs from ``start`` to ``stop``."""

    def __init__(self, folder: Path, *, replicas: int = 2, down_after_ms: int = 500) -> None:
        self._folder, self._program = folder, find_server()
        self._down_after_ms = down_after_ms
        #: The ports of primary and replicas.
        self.data = free_ports(replicas + 1)
        self._sentinels = free_ports(SENTINELS)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._over = threading.Event()
        self._observers: list[threading.Thread] = []
        self._noting = threading.Lock()
        self.switches: list[Switch] = []

    @property
    def sentinels(self) -> list[int]:
        """The sentinels' ports."""
        return self._sentinels

    def url(self, database: int = 0, *, name: str = NAME) -> str:
        """The group's URL as a user may write it: each fact once."""
        first, *others = (f"sentinel://{HOST}:{port}" for port in self._sentinels)
        first = first.replace("//", f"//:{quote(PASSWORD, safe='')}@")
        theirs = f"sentinel_password={quote(THEIRS, safe='')}"
        return f"{';'.join((first, *others))}/{database}?master_name={name}&{theirs}"

    def start(self) -> None:
        """Start all, and wait until each sentinel knows the others and the replicas."""
        first, *replicas = self.data
        self.revive(first)
        for port in replicas:
            self.revive(port, primary=first)
        # Else sentinels hear of the replicas with their next look, which is 10 s later.
        _until(lambda: self._followed(first) == len(replicas), "the replicas follow")
        for port in self._sentinels:
            self._spawn(
                port,
                "--sentinel",
                f"requirepass {THEIRS}",
                f"sentinel sentinel-pass {THEIRS}",
                f"sentinel monitor {NAME} {HOST} {first} 2",
                f"sentinel auth-pass {NAME} {PASSWORD}",
                f"sentinel down-after-milliseconds {NAME} {self._down_after_ms}",
                f"sentinel failover-timeout {NAME} 3000",
            )
        _until(self.is_whole, "the sentinels know each other")
        for port in self._sentinels:
            thread = threading.Thread(target=self._observe, args=(port,), daemon=True)
            thread.start()
            self._observers.append(thread)

    def stop(self) -> None:
        self._over.set()
        for thread in self._observers:
            thread.join(LIMIT)
        for process in self._processes.values():
            process.kill()
            process.wait()

    def client(self, port: int, **options: Any) -> redis.Redis:
        """A client of one server or sentinel."""
        password = THEIRS if port in self._sentinels else PASSWORD
        return redis.Redis(HOST, port, password=password, decode_responses=True, **options)

    def primary(self) -> int:
        """The port of the primary, as the first sentinel has it."""
        with self.client(self._sentinels[0]) as sentinel:
            return int(sentinel.sentinel_master(NAME)["port"])

    def is_whole(self) -> bool:
        """Tell whether each sentinel knows the others, and that all replicas follow one primary."""
        try:
            primaries = set(map(self._whole_primary, self._sentinels))
        except redis.RedisError:
            return False
        return len(primaries) == 1 and None not in primaries

    def kill(self, port: int) -> None:
        """``kill -9`` of a server."""
        process = self._processes.pop(port)
        process.kill()
        process.wait()

    def revive(self, port: int, *, primary: int | None = None) -> None:
        """Start a server that was killed, as a replica of ``primary``; None: as it was before."""
        self._spawn(
            port,
            *("", f"requirepass {PASSWORD}", f"masterauth {PASSWORD}", 'save ""'),
            *("repl-diskless-sync-delay 0", "appendonly no", "maxmemory-policy noeviction"),
            *([] if primary is None else [f"replicaof {HOST} {primary}"]),
        )

    def _switched(self, seen: int, old: int) -> Switch:
        """Wait until a sentinel says a failover from ``old``, after the first ``seen`` of all."""

        def said() -> Iterator[Switch]:
            return (each for each in self.switches[seen:] if each.old == old)

        _until(lambda: any(said()), "a failover")
        return next(said())

    def fail_over(self, *, forgets: float = 0.0) -> Switch:
        """``kill -9`` of the primary; it comes back as a replica once there is another one.

        ``forgets``: seconds before it in which the replicas got nothing of what it answered for.
        """
        seen, port = len(self.switches), self.primary()
        if forgets:
            with self.client(port) as client:
                # Who is connected stays so. The replicas are not let in again.
                client.config_set("requirepass", "another")
                client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            time.sleep(forgets)
        self.kill(port)
        switch = self._switched(seen, port)
        self.revive(port, primary=switch.port)
        return switch

    def demote(self) -> Switch:
        """Have a sentinel fail over although the primary works."""
        seen, port = len(self.switches), self.primary()
        with self.client(self._sentinels[0]) as sentinel:

            def accepted() -> bool:
                try:
                    return bool(sentinel.sentinel_failover(NAME))
                except redis.ResponseError:  # the last one is not over, or no replica is fit
                    return False

            _until(accepted, "a sentinel fails over")
        return self._switched(seen, port)

    def hang(self) -> Switch:
        """Stop the primary until there is another one, as a host that is cut off for a while.

        It then serves who is still connected, until a sentinel finds it and makes it a replica.
        """
        seen, port = len(self.switches), self.primary()
        process = self._processes[port]
        process.send_signal(signal.SIGSTOP)
        try:
            return self._switched(seen, port)
        finally:
            process.send_signal(signal.SIGCONT)

    def _followed(self, port: int) -> int:
        """Return how many replicas a server has."""
        try:
            with self.client(port) as client:
                return int(client.info("replication")["connected_slaves"])
        except redis.RedisError:
            return 0

    def _whole_primary(self, port: int) -> int | None:
        """Return the primary as a sentinel has it, if it knows all others and nothing changes."""
        with self.client(port) as sentinel:
            state: Any = sentinel.sentinel_master(NAME)
            replicas: Any = sentinel.sentinel_slaves(NAME)
        works = [r for r in replicas if not r["is_sdown"] and r["master-link-status"] == "ok"]
        others = int(state["num-other-sentinels"])
        whole = others == SENTINELS - 1 and len(works) == len(self.data) - 1
        return int(state["port"]) if whole and state["flags"] == "master" else None

    def _spawn(self, port: int, option: str, *lines: str) -> None:
        folder = self._folder / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "server.conf"
        common = (f"port {port}", f"bind {HOST}", f"dir {folder}")
        file.write_text("\n".join((*common, *lines)) + "\n")
        with (folder / "log").open("ab") as log:
            command = [str(self._program), str(file), *([option] if option else [])]
            self._processes[port] = subprocess.Popen(command, stdout=log, stderr=log)

    def _observe(self, port: int) -> None:
        while not self._over.is_set():
            with contextlib.suppress(redis.RedisError), self.client(port) as sentinel:
                channel: Any = sentinel.pubsub(ignore_subscribe_messages=True)
                channel.subscribe("+switch-master")
                while not self._over.is_set():
                    if message := channel.get_message(timeout=0.2):
                        _, _, old, _, new = str(message["data"]).split()
                        self._note(Switch(time.time(), int(old), int(new)))

    def _note(self, switch: Switch) -> None:
        """Note a failover, unless another sentinel has said the same one."""
        with self._noting:
            for known in self.switches:
                if known[1:] == switch[1:] and switch.at - known.at < SAME:
                    return
            self.switches.append(switch)


@contextmanager
def group(folder: Path, **options: Any) -> Iterator[Group]:
    """A group that runs meanwhile."""
    made = Group(folder, **options)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def free_ports(n: int) -> list[int]:
    """Return ports on which nothing listens now."""
    with contextlib.ExitStack() as held:
        taken = [held.enter_context(socket.create_server((HOST, 0))) for _ in range(n)]
        return [each.getsockname()[1] for each in taken]


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not in {LIMIT:g} s")
        time.sleep(0.02)
