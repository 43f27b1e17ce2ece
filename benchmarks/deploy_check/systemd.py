"""The systemd units, in a container of the image that systemd boots.

`penstock.env` is the shipped one: its broker's host is the container itself, by another name, and
its password is the one that Redis there asks for.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.deploy_check.image import IMAGE, Containers, build, build_image, containers, podman
from benchmarks.deploy_check.parts import DEPLOY, Ran, check, said, until
from benchmarks.deploy_check.study import Site, carry_through, write_script

_SYSTEM = f"{IMAGE}-systemd"
#: The shipped file's broker, and what its Redis has to ask for.
_HOST, _PASSWORD = "broker.example", "CHANGE-ME"
_CONTAINERFILE = f"""\
FROM {IMAGE}
USER root
RUN apt-get update \\
    && apt-get install --no-install-recommends -y systemd systemd-sysv dbus redis-server \\
    && echo "requirepass {_PASSWORD}" >> /etc/redis/redis.conf \\
    && install -d -o penstock /srv/penstock/checkpoints
ENTRYPOINT []
CMD ["/sbin/init"]
"""


@dataclass(slots=True)
class Unit:
    """The worker's unit."""

    made: Containers

    def start(self) -> None:
        """As an operator does."""
        self.made_says("systemctl", "enable", "--now", "penstock-worker")

    def drain(self) -> None:
        """Stop the unit; systemd must be content with how it ended."""
        self.made_says("systemctl", "stop", "penstock-worker")
        ended = self.made_says("systemctl", "show", "-p", "Result", "penstock-worker").strip()
        check(ended == "Result=success", f"systemd says of the worker: {ended}")

    def made_says(self, *words: str) -> str:
        """Run a command in the container and return its output."""
        return said([*self.made.inside("system"), *words])


def run(folder: Path) -> Ran:
    """Boot; run the study; kill the scheduler; shut down."""
    podman()
    build_image()
    file = folder / "Containerfile"
    file.write_text(_CONTAINERFILE)
    build(_SYSTEM, "--file", file, folder)
    script, settings = "/srv/tuning/train.py", folder / "penstock.env"
    settings.write_bytes((DEPLOY / "penstock.env").read_bytes())
    units = sorted((DEPLOY / "systemd").glob("*.service"))
    mounts = [f"{unit}:/etc/systemd/system/{unit.name}:ro" for unit in units]
    mounts += [f"{settings}:/etc/penstock/penstock.env:ro", f"{write_script(folder)}:{script}:ro"]
    # Control groups of version 1 are not delegated to a container by themselves.
    mounts += ["/sys/fs/cgroup:/sys/fs/cgroup:ro"]
    with containers() as made:
        unit = Unit(made)
        options = [word for mount in mounts for word in ("--volume", mount)]
        tmp = ("--tmpfs", "/run", "--tmpfs", "/tmp")
        host = ("--add-host", f"{_HOST}:127.0.0.1")
        made.run("system", "--systemd=always", *tmp, *host, *options, _SYSTEM)
        state = [*made.inside("system"), "systemctl", "is-system-running"]
        until(lambda: said(state, status=None).strip() in {"running", "degraded"}, "it boots")
        unit.made_says("systemctl", "enable", "--now", "penstock-scheduler", "penstock-metrics")
        site = _site(made)
        words = carry_through(site, unit, script, _cores(unit))
        back = kill_scheduler(unit)
        active = unit.made_says("systemctl", "is-active", *(each.stem for each in units))
        check(active.split() == ["active"] * len(units), f"not all units are active: {active}")
        version = re.search(r"systemd (\d+)", unit.made_says("systemctl", "--version"))
        began = time.monotonic()
        said([*podman(), "stop", "--time", "90", made.name("system")])
        down = time.monotonic() - began
    return Ran(
        f"systemd {version[1] if version else ''}",
        f"3 units in a container; {words}; scheduler killed, back in {back:.1f} s;"
        f" shut down in {down:.1f} s",
    )


def kill_scheduler(unit: Unit) -> float:
    """Kill it with SIGKILL; the seconds until systemd has another one running."""
    ask = ("systemctl", "show", "-p", "MainPID", "--value", "penstock-scheduler")
    before, began = unit.made_says(*ask).strip(), time.monotonic()
    unit.made_says("systemctl", "kill", "--kill-who=main", "-s", "KILL", "penstock-scheduler")
    until(lambda: unit.made_says(*ask).strip() not in {before, "0"}, "the scheduler is back")
    return time.monotonic() - began


def _site(made: Containers) -> Site:
    """A user of that machine, who has read the same settings."""
    at = made.inside("system", "--user", "penstock")
    read = 'set -a; . /etc/penstock/penstock.env; exec "$@"'
    enter = [*at, "sh", "-c", read, "sh"]
    return Site([*enter, "/opt/penstock/bin/penstock"], [*enter, "/opt/penstock/bin/python"])


def _cores(unit: Unit) -> int:
    """Return the number of devices that `auto` means in the container."""
    return int(unit.made_says("nproc"))
