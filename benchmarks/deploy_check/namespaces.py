"""Nodes on one machine: network namespaces, each with an address and a name, on one bridge."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.deploy_check.parts import Failed, Missing, be_root, program, said


@contextmanager
def hosts(*names: str) -> Iterator[dict[str, tuple[str, list[str]]]]:
    """By name: an address, and what is put before a command that is to run there.

    Raises Missing where this machine cannot have any.
    """
    be_root("who makes network namespaces")
    ip, nsenter = program("ip", "iproute2"), program("nsenter", "util-linux")
    unshare, tag = program("unshare", "util-linux"), secrets.token_hex(3)
    # A private net of its own for each run, so that two runs on one machine do not meet.
    net = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"
    spaces = {name: f"penstock-{tag}-{name}" for name in ("switch", *names)}
    switch = spaces["switch"]
    try:
        try:
            _make(ip, spaces, net)
        except Failed as failed:
            raise Missing(f"no network namespaces: {failed}") from None
        enter = {name: [nsenter, f"--net=/run/netns/{space}"] for name, space in spaces.items()}
        named = 'hostname "$1"; shift; exec "$@"'
        yield {
            name: (
                f"{net}.{number}",
                # Not `ip netns exec`: it mounts another /sys, which SLURM's daemons look into.
                [*enter[name], unshare, "--uts", "sh", "-c", named, "sh", name],
            )
            for number, name in enumerate(names, start=1)
        }
    finally:
        for space in (*(spaces[name] for name in names), switch):
            subprocess.run([ip, "netns", "del", space], check=False, capture_output=True)


def _make(ip: str, spaces: dict[str, str], net: str) -> None:
    def do(*words: str) -> None:
        said([ip, *words])

    for space in spaces.values():
        do("netns", "add", space)
    switch = spaces["switch"]
    do("-n", switch, "link", "add", "bridge", "type", "bridge")
    do("-n", switch, "link", "set", "bridge", "up")
    others: Sequence[str] = [name for name in spaces if name != "switch"]
    for number, name in enumerate(others, start=1):
        space, port = spaces[name], f"to-{number}"
        ends = ("eth0", "netns", space, "type", "veth", "peer", "name", port, "netns", switch)
        do("link", "add", *ends)
        do("-n", space, "addr", "add", f"{net}.{number}/24", "dev", "eth0")
        do("-n", space, "link", "set", "lo", "up")
        do("-n", space, "link", "set", "eth0", "up")
        do("-n", switch, "link", "set", port, "master", "bridge")
        do("-n", switch, "link", "set", port, "up")
