"""The image that deploy/docker/Dockerfile makes, built and run with podman.

Where no registry of images is reached, its base comes from Debian's packages, which have another
Python than the one that the Dockerfile names by default.
"""

from __future__ import annotations

import os
import secrets
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.deploy_check.operator import PASSWORD, start_broker
from benchmarks.deploy_check.parts import DEPLOY, ROOT, Failed, Ran, check, program, said, until
from benchmarks.deploy_check.processes import processes
from benchmarks.deploy_check.study import Site, carry_through, write_script

#: Variables with further options: for podman itself, and for `podman build` and what it runs, where
#: a network asks for more (certificates, an index of packages).
PODMAN_OPTIONS, BUILD_OPTIONS = "DEPLOY_CHECK_PODMAN", "DEPLOY_CHECK_BUILD"
IMAGE = "localhost/penstock-deploy-check"
#: By the version of Python: of Docker's image, and of Debian's packages.
_BASE = "docker.io/library/python:{}-slim-bookworm"
_OFFICIAL, _DEBIAN = "3.12", "3.11"
#: Seconds for downloads, and for a build with torch in it.
_SLOW = 3600.0
#: Bytes that a container may use; Penstock has to notice this limit.
_MEMORY = 1 << 30


def podman() -> list[str]:
    """Return the command of podman with its options on this machine."""
    return [program("podman", "podman"), *shlex.split(os.environ.get(PODMAN_OPTIONS, ""))]


def build(tag: str, *words: str | Path) -> None:
    """Build an image, from what is here and what the network gives."""
    more = shlex.split(os.environ.get(BUILD_OPTIONS, ""))
    said([*podman(), "build", "--pull=never", *more, "--tag", tag, *words], timeout=_SLOW)


def build_image() -> str:
    """The image of Penstock, by the Dockerfile as it is; the version of Python in it."""
    python, _ = base()
    file = DEPLOY / "docker/Dockerfile"
    build(IMAGE, "--build-arg", f"PYTHON={python}", "--file", file, ROOT)
    return python


def base() -> tuple[str, str]:
    """The version of Python and the name of the Dockerfile's base image, which is here now."""
    tool = podman()
    for python in (_OFFICIAL, _DEBIAN):
        if succeeds([*tool, "image", "exists", _BASE.format(python)]):
            return python, _BASE.format(python)
    official, debian = _BASE.format(_OFFICIAL), _BASE.format(_DEBIAN)
    if succeeds([*tool, "pull", "--quiet", official]):
        return _OFFICIAL, official
    strap = program("mmdebstrap", "mmdebstrap")  # no registry is reached
    packages = "python3,python3-venv,ca-certificates"
    link = 'ln -s python3 "$1/usr/bin/python"'
    options = ["--variant=minbase", f"--include={packages}", f"--customize-hook={link}"]
    with tempfile.TemporaryDirectory(prefix="penstock-base-") as folder:
        tar = Path(folder, "base.tar")
        said([strap, *options, "bookworm", tar], timeout=_SLOW)
        said([*tool, "import", tar, debian], timeout=_SLOW)
    return _DEBIAN, debian


def succeeds(command: Sequence[str]) -> bool:
    """Return True if a command ends with exit status 0."""
    try:
        said(command, timeout=_SLOW)
    except Failed:
        return False
    return True


@dataclass(slots=True)
class Containers:
    """Containers and volumes of one part, gone at its end."""

    tag: str = field(default_factory=lambda: f"penstock-{secrets.token_hex(3)}")
    names: list[str] = field(default_factory=list)

    def run(self, name: str, *words: str | Path) -> None:
        """Run a container in the background. ``words`` are options, the image, its command."""
        self.names.append(name)
        said([*podman(), "run", "--detach", "--name", self.name(name), *words])

    def name(self, name: str) -> str:
        """The name of a container, or a volume, for podman."""
        return f"{self.tag}-{name}"

    def inside(self, name: str, *words: str) -> list[str]:
        """Return the words that run a command in the running container ``name``."""
        return [*podman(), "exec", *words, self.name(name)]

    def logs(self) -> str:
        """Return the last lines of the containers' logs."""
        return "\n".join(
            f"== {name}\n{said([*podman(), 'logs', '--tail', '30', self.name(name)], status=None)}"
            for name in self.names
        )

    def remove(self) -> None:
        """Remove all of them."""
        for name in reversed(self.names):
            said([*podman(), "rm", "--force", "--volumes", self.name(name)], status=None)
        volumes = said([*podman(), "volume", "ls", "--quiet"]).split()
        for volume in (each for each in volumes if each.startswith(f"{self.tag}-")):
            said([*podman(), "volume", "rm", "--force", volume], status=None)


@contextmanager
def containers() -> Iterator[Containers]:
    """Containers that are gone after the block; a failure in it is given what they said."""
    made = Containers()
    try:
        yield made
    except Failed as error:
        raise Failed(f"{error}\n{made.logs()}") from error
    finally:
        made.remove()


@dataclass(slots=True)
class WorkerContainer:
    """`penstock worker` in a container."""

    made: Containers
    options: Sequence[str | Path]
    started: bool = False

    def start(self) -> None:
        """Have it join."""
        if self.started:
            said([*podman(), "start", self.made.name("worker")])
        else:
            self.made.run("worker", *self.options, IMAGE, "worker", "--devices", "cpu:1x1")
        self.started = True

    def drain(self) -> None:
        """`podman stop`, with the grace that compose.yaml gives."""
        said([*podman(), "stop", "--time", "45", self.made.name("worker")])
        ask = ["inspect", "--format", "{{.State.ExitCode}}", self.made.name("worker")]
        status = said([*podman(), *ask]).strip()
        check(status == "0", f"the worker's container ended with {status}")


def run(folder: Path) -> Ran:
    """Run scheduler and worker in containers of the image, with a broker of this machine."""
    version = said([*podman(), "--version"]).strip()
    python = build_image()
    script, secret = write_script(folder), folder / "password"
    secret.write_text(PASSWORD)
    with processes(folder) as running, containers() as made:
        url = start_broker(running).replace(f":{PASSWORD}@", "")
        options = (
            *("--network", "host"),
            *("--env", f"PENSTOCK_BROKER={url}"),
            *("--env", "BROKER_PASSWORD_FILE=/run/secrets/password"),
            *("--volume", f"{secret}:/run/secrets/password:ro"),
            *("--volume", f"{script}:{script}:ro"),
            *("--volume", f"{made.name('checkpoints')}:/checkpoints"),
        )
        state = ("--volume", f"{made.name('state')}:/state", "--env", "PENSTOCK_HOME=/state")
        store = ("--env", "PENSTOCK_STORE=file:///checkpoints")
        made.run("scheduler", *options, *state, *store, IMAGE, "scheduler")
        at = made.inside("scheduler")
        site = Site([*at, "sh", "/usr/local/bin/entrypoint.sh"], [*at, "python"])
        health = [*at, "python", "/usr/local/bin/healthy.py", "scheduler"]
        until(lambda: succeeds(health), "the scheduler's container is healthy")
        words = carry_through(site, WorkerContainer(made, options), script, 1)
        seen = said([*podman(), "run", "--rm", f"--memory={_MEMORY}", *_memory_of()])
        check(int(seen.split()[-1]) == _MEMORY, f"of a limit of {_MEMORY} bytes it sees {seen}")
    return Ran(version, f"image built, Python {python}; {words}; a memory limit is seen")


def _memory_of() -> list[str]:
    code = "from penstock.profiling.devices.cgroups import usable_memory; print(usable_memory())"
    return ["--entrypoint", "python", IMAGE, "-c", code]
