"""A small network on this machine: nodes in network namespaces, joined by one switch.

Each node has an address and a loopback device of its own, so that 127.0.0.1 and the host's name
lead nowhere. The switch is a bridge in a namespace of its own; a node's cable is pulled at the
switch, so that the node itself is not told. Needs root and the ``ip`` command.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
import redis
from patience import PATIENCE, until
from penstock.app.broker import connection
from penstock.app.host.broker_program import find_server

#: The password of the brokers here.
PASSWORD = secrets.token_urlsafe(12)
_LISTENING = """
import psutil
print(*(at.laddr.ip for at in psutil.net_connections("tcp") if at.status == "LISTEN"))
"""


class Network:
    """Nodes by name. Calls skip the test where the machine cannot do it, but not under CI."""

    def __init__(self, *nodes: str) -> None:
        self._tag = secrets.token_hex(3)
        # A private net of its own for each run, so that two runs on one machine do not meet.
        self._net = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"
        self._numbers = {name: number for number, name in enumerate(nodes, start=1)}
        self._spaces = {name: f"penstock-{self._tag}-{name}" for name in ("switch", *nodes)}

    def make(self) -> None:
        if shutil.which("ip") is None:
            _cannot("no ip command here (package iproute2)")
        for space in self._spaces.values():
            self._ip("netns", "add", space)
        switch = self._spaces["switch"]
        self._ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        self._ip("-n", switch, "link", "set", "bridge", "up")
        for name, number in self._numbers.items():
            space, port = self._spaces[name], _port(name)
            ends = ("eth0", "netns", space, "type", "veth", "peer", "name", port, "netns", switch)
            self._ip("link", "add", *ends)
            self._ip("-n", space, "addr", "add", f"{self._net}.{number}/24", "dev", "eth0")
            self._ip("-n", space, "link", "set", "lo", "up")
            self._ip("-n", space, "link", "set", "eth0", "up")
            self._ip("-n", switch, "link", "set", port, "master", "bridge")
            self._ip("-n", switch, "link", "set", port, "up")

    def remove(self) -> None:
        for space in self._spaces.values():
            _run("ip", "netns", "del", space)

    def address(self, node: str) -> str:
        return f"{self._net}.{self._numbers[node]}"

    def inside(self, node: str) -> tuple[str, ...]:
        """Return the prefix of a command that is to run on ``node``."""
        return ("ip", "netns", "exec", self._spaces[node])

    def cut(self, node: str) -> None:
        """Pull the node's cable."""
        self._ip("-n", self._spaces["switch"], "link", "set", _port(node), "down")

    def mend(self, node: str) -> None:
        self._ip("-n", self._spaces["switch"], "link", "set", _port(node), "up")

    def keep_apart(self, *nodes: str, apart: bool = True) -> None:
        """These nodes reach all the others, but not each other."""
        for node in nodes:
            isolated = ("type", "bridge_slave", "isolated", "on" if apart else "off")
            self._ip("-n", self._spaces["switch"], "link", "set", _port(node), *isolated)

    def slow_down(self, node: str, kbit: int) -> None:
        """Let ``kbit`` kilobits a second through the node's cable in either direction.

        The kernel's token bucket; most kernels have it, while netem (delay) is often left out.
        """
        rate = ("root", "tbf", "rate", f"{kbit}kbit", "burst", "16kb", "latency", "1s")
        for space, device in ((node, "eth0"), ("switch", _port(node))):
            done = _run("tc", "-n", self._spaces[space], "qdisc", "replace", "dev", device, *rate)
            if done is None or done.returncode:
                _cannot(f"no slow cables here: {done.stderr.strip() if done else 'no tc command'}")

    def speed_up(self, node: str) -> None:
        """Undo ``slow_down``."""
        for space, device in ((node, "eth0"), ("switch", _port(node))):
            _run("tc", "-n", self._spaces[space], "qdisc", "del", "dev", device, "root")

    def kill_all(self, node: str) -> None:
        """End every process on the node, at once and without a word."""
        found = _run("ip", "netns", "pids", self._spaces[node])
        for pid in map(int, found.stdout.split() if found else ()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def listening(self, node: str) -> set[str]:
        """The addresses at which processes of the node wait for connections over TCP."""
        found = _run(*self.inside(node), sys.executable, "-c", _LISTENING)
        assert found is not None
        return set(found.stdout.split())

    @contextmanager
    def broker(self, node: str) -> Iterator[str]:
        """The URL of a broker on ``node``."""
        with tcp_broker(self.address(node), self.inside(node)) as url:
            yield url

    @staticmethod
    def _ip(*arguments: str) -> None:
        done = _run("ip", *arguments)
        if done is None or done.returncode:
            _cannot(f"ip {' '.join(arguments)}: {done.stderr.strip() if done else 'no command'}")


@contextmanager
def network(*nodes: str) -> Iterator[Network]:
    """A network of these nodes, gone afterwards."""
    made = Network(*nodes)
    try:
        made.make()
        yield made
    finally:
        made.remove()


@contextmanager
def tcp_broker(
    address: str, inside: tuple[str, ...] = (), more: Sequence[str] = ()
) -> Iterator[str]:
    """The URL of a broker with a password, as an operator would run one for several machines.

    ``more`` are further options of the server.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--bind", address, "--port", str(port), "--requirepass", PASSWORD, "--save", "")
    process = subprocess.Popen(
        [*inside, find_server(), *options, *more], stdout=subprocess.DEVNULL, cwd="/"
    )
    try:
        yield f"redis://:{PASSWORD}@{address}:{port}/0"
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextmanager
def answering_broker(*options: str) -> Iterator[tuple[str, redis.Redis]]:
    """The URL of a broker on this machine that answers, and a client of it with all rights.

    ``options`` are further ones of the server.
    """
    with tcp_broker("127.0.0.1", more=options) as url, connection.connect(url) as client:
        until(lambda: _answers(client), "the broker answers")
        yield url, client


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _port(node: str) -> str:
    return f"to-{node}"


def _run(*command: str) -> subprocess.CompletedProcess[str] | None:
    if shutil.which(command[0]) is None:
        return None
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _cannot(why: str) -> None:
    """Skip; but fail where these tests have to run."""
    if os.environ.get("CI") == "true" and os.geteuid() == 0:
        pytest.fail(why)
    pytest.skip(f"no network namespaces here, they need root and iproute2: {why}")
