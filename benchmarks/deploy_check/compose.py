"""deploy/compose.yaml on a Docker engine, with the image that podman builds of the Dockerfile.

Others' images come from Docker's registry. Where it is not reached, Valkey
and Prometheus are made of Debian's packages; Grafana, which Debian lacks, is left out then.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.deploy_check.image import IMAGE, base, build, build_image, podman, succeeds
from benchmarks.deploy_check.parts import DEPLOY, Failed, Missing, Ran, check, program, said, until
from benchmarks.deploy_check.processes import free_ports
from benchmarks.deploy_check.study import Site, carry_through, write_script

_INSTALL = "RUN apt-get update && apt-get install --no-install-recommends -y"
#: Of stand-ins, by the beginning of the image's name: what follows its base.
_STAND_INS = {
    "valkey/valkey": f"""\
{_INSTALL} redis-server \\
    && ln -s redis-server /usr/bin/valkey-server && ln -s redis-cli /usr/bin/valkey-cli \\
    && install -d /data
""",
    "prom/prometheus": f"""\
{_INSTALL} prometheus wget && install -d /prometheus
WORKDIR /prometheus
ENTRYPOINT ["prometheus", "--config.file=/etc/prometheus/prometheus.yml"]
""",
}
#: Tells a stand-in from the image whose name it has.
_LABEL = "penstock.stand-in"
#: The variables that say at which ports of this machine services are reached.
_PORTS = ("BROKER_PORT", "FLOWER_PORT", "METRICS_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
_SLOW = 3600.0


@dataclass(slots=True)
class Project:
    """A copy of deploy/ as a project of Compose, with secrets of its own."""

    compose: Sequence[str]
    folder: Path
    script: Path
    variables: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        shutil.copytree(DEPLOY, self.folder, ignore=shutil.ignore_patterns("secrets"))
        (self.folder / "secrets").mkdir(mode=0o755)
        for name in ("broker", "postgres", "grafana"):
            (self.folder / f"secrets/{name}_password").write_text(secrets.token_hex(24))
        ports = dict(zip(_PORTS, map(str, free_ports(len(_PORTS))), strict=True))
        self.variables = {
            **os.environ,
            **ports,
            "COMPOSE_PROJECT_NAME": f"penstock{secrets.token_hex(3)}",
            "PENSTOCK_CODE": str(self.script.parent),
            "PENSTOCK_IMAGE": IMAGE,
            "PENSTOCK_DEVICES": "cpu:1x1",
        }

    def command(self, *words: str) -> list[str]:
        """A command of Compose's, on the shipped file."""
        return [*self.compose, "-f", str(self.folder / "compose.yaml"), *words]

    def says(self, *words: str, status: int | None = 0) -> str:
        """Run a command of Compose and return its output."""
        return said(self.command(*words), env=self.variables, status=status, cwd=self.folder)

    def state(self, service: str, field: str) -> str:
        """A field of the state of a service's container, as Docker has it."""
        container = self.says("ps", "--all", "--quiet", service).strip().splitlines()[-1]
        return said([_docker(), "inspect", "--format", f"{{{{{field}}}}}", container]).strip()

    def is_healthy(self, service: str) -> bool:
        """Return True if the service's health check succeeds."""
        return self.state(service, ".State.Health.Status") == "healthy"

    # -- the workers of the study ------------------------------------------------------------------

    def start(self) -> None:
        """Have the worker join."""
        self.says("up", "--detach", "--no-build", "worker")

    def drain(self) -> None:
        """Stop the worker's container, with the grace of the file."""
        self.says("stop", "worker")
        status = self.state("worker", ".State.ExitCode")
        check(status == "0", f"the worker's container ended with {status}")


def run(folder: Path) -> Ran:
    """All services whose images can be had: healthy; the study; down."""
    compose = _compose()
    version = said([*compose, "version", "--short"]).strip()
    if not succeeds([_docker(), "info"]):
        raise Missing("no Docker engine answers: apt install --no-install-recommends docker.io")
    engine = said([_docker(), "version", "--format", "{{.Server.Version}}"]).strip()
    build_image()
    _hand_over(IMAGE)
    services = YAML(typ="safe").load(DEPLOY / "compose.yaml")["services"]
    always = [name for name, each in services.items() if "profiles" not in each]
    others = {name: services[name]["image"] for name in always if "build" not in services[name]}
    stood_in, left_out = _images(folder, others)
    chosen = [name for name in always if name not in left_out]
    code = folder / "code"
    code.mkdir()
    with _project(Project(compose, folder / "deploy", write_script(code))) as project:
        project.says("up", "--detach", "--no-build", *(n for n in chosen if n != "worker"))
        penstock = project.command("run", "--rm", "-T", "client")
        python = project.command("exec", "-T", "scheduler", "python")
        site = Site(penstock, python, project.variables)
        words = carry_through(site, project, project.script, 1)
        for name in chosen:
            until(partial(project.is_healthy, name), f"{name} is healthy")
    without = f", without {', '.join(left_out)}" if left_out else ""
    instead = f" ({' and '.join(stood_in)} of Debian)" if stood_in else ""
    return Ran(
        f"Compose {version}, Docker {engine}",
        f"{len(chosen)} services{without}{instead}, all healthy; {words}",
    )


@contextmanager
def _project(project: Project) -> Iterator[Project]:
    try:
        yield project
    except Failed as error:
        raise Failed(f"{error}\n{project.says('logs', '--tail=30', status=None)}") from error
    finally:
        project.says("--profile", "client", "down", "--volumes", "--timeout", "10", status=None)


def _compose() -> list[str]:
    """Compose, as a plug-in of Docker's or by itself."""
    for words in ([_docker(), "compose"], ["docker-compose"]):
        if shutil.which(words[0]) and succeeds([*words, "version"]):
            return words
    raise Missing("no Compose: apt install --no-install-recommends docker-compose")


def _docker() -> str:
    return program("docker", "docker.io")


def _images(folder: Path, wanted: dict[str, str]) -> tuple[list[str], list[str]]:
    """See that the engine has these images, by service: which are stood in for, which it lacks."""
    stood_in, left_out = [], []
    for service, image in wanted.items():
        if succeeds([_docker(), "image", "inspect", image]):
            stood_in += [service] if _is_stand_in(image) else []
            continue
        if succeeds([_docker(), "pull", "--quiet", image]):
            continue
        known = _STAND_INS.get(image.partition(":")[0])
        if known is None:
            left_out.append(service)
        else:
            _stand_in(folder, image, known)
            stood_in.append(service)
    return stood_in, left_out


def _is_stand_in(image: str) -> bool:
    """Return True if an earlier check has made the image."""
    label = f'{{{{index .Config.Labels "{_LABEL}"}}}}'
    return said([_docker(), "image", "inspect", "--format", label, image]).strip() == "yes"


def _stand_in(folder: Path, image: str, made_by: str) -> None:
    """Make an image of Debian's packages under the name of another one."""
    file = folder / "Containerfile"
    file.write_text(f"FROM {base()[1]}\nLABEL {_LABEL}=yes\n{made_by}")
    tag = f"docker.io/{image}"
    build(tag, "--file", file, folder)
    _hand_over(tag)


def _hand_over(image: str) -> None:
    """Give the engine an image that podman has."""
    with subprocess.Popen([*podman(), "save", image], stdout=subprocess.PIPE) as saved:
        said([_docker(), "load"], stdin=saved.stdout, timeout=_SLOW)
    check(saved.returncode == 0, f"podman does not save {image}")
