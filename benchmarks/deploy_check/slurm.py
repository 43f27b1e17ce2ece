"""SLURM: workers by the shipped sbatch script, on a cluster of this user's own."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.deploy_check.operator import environment, start_broker, start_scheduler
from benchmarks.deploy_check.parts import DEPLOY, Ran, check, program, said, until
from benchmarks.deploy_check.processes import Processes, free_ports, processes
from benchmarks.deploy_check.study import carry_through, write_script

SCRIPT = DEPLOY / "slurm/workers.sbatch"
#: Megabytes that a node says it has.
_MEMORY = 1000


@dataclass(frozen=True, slots=True)
class Node:
    """A node: where it is reached, how many CPUs it says it has, and how to run a command there."""

    name: str
    address: str
    cpus: int
    inside: Sequence[str] = ()


def configuration(
    folder: Path, controller: Node, nodes: Sequence[Node], ports: Sequence[int]
) -> str:
    """slurm.conf of a cluster whose daemons are all this user's."""
    user = getpass.getuser()
    own = {
        "ClusterName": "check",
        "SlurmctldHost": f"{controller.name}({controller.address})",
        "SlurmUser": user,
        "SlurmdUser": user,
        "SlurmctldPort": ports[0],
        "SlurmdPort": ports[1],
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder / 'munge.socket'}",
        "CredType": "cred/munge",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool-%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd-%n.pid",
        # Nothing that needs control groups of its own. CPUs are bound, as on most clusters.
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/affinity",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SwitchType": "switch/none",
        "MpiDefault": "none",
        "ReturnToService": 2,
        # Nodes on one machine have more CPUs together than it has.
        "SlurmdParameters": "config_overrides",
    }
    lines = [f"{name}={value}" for name, value in own.items()]
    lines += [
        f"NodeName={node.name} NodeHostname={node.name} NodeAddr={node.address}"
        f" CPUs={node.cpus} RealMemory={_MEMORY}"
        for node in nodes
    ]
    names = ",".join(node.name for node in nodes)
    lines.append(f"PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


@dataclass(slots=True)
class Cluster:
    """Daemons of SLURM that run as processes of a part."""

    folder: Path
    running: Processes
    controller: Node
    nodes: Sequence[Node]
    variables: dict[str, str] = field(init=False)

    def start(self) -> None:
        """Start them, and wait until all nodes are idle."""
        munged, slurmctld = program("munged", "munge"), program("slurmctld", "slurm-wlm")
        slurmd = program("slurmd", "slurm-wlm")
        file = self.folder / "slurm.conf"
        text = configuration(self.folder, self.controller, self.nodes, free_ports(2))
        file.write_text(text)
        self.variables = {**os.environ, "SLURM_CONF": str(file)}
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = {"key": key, "socket": self.folder / "munge.socket"}
        files |= {name: self.folder / f"munge.{name}" for name in ("pid", "seed")}
        names = {"key": "key-file", "pid": "pid-file", "seed": "seed-file", "socket": "socket"}
        options = [f"--{names[name]}={path}" for name, path in files.items()]
        # Its checks of folders are for a service of the system.
        own = [f"--log-file={self.folder / 'munged.log'}", "--foreground", "--force"]
        self.running.start("munge", [munged, *own, *options])
        until(files["socket"].exists, "munged listens")
        at = self.controller.inside
        self.running.start("slurmctld", [*at, slurmctld, "-D", "-f", file], self.variables)
        for node in self.nodes:
            (self.folder / f"spool-{node.name}").mkdir()
            daemon = [*node.inside, slurmd, "-D", "-f", file, "-N", node.name]
            self.running.start(f"slurmd-{node.name}", daemon, self.variables)
        until(self._are_idle, "all nodes are idle")

    def _are_idle(self) -> bool:
        for name in ("slurmctld", *(f"slurmd-{node.name}" for node in self.nodes)):
            self.running.check_alive(name)
        states = self.ask("sinfo", "--noheader", "--Node", "--format=%T", status=None)
        return states.split() == ["idle"] * len(self.nodes)

    def ask(
        self,
        command: str,
        *words: str | Path,
        status: int | None = 0,
        more: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command of SLURM's on the controller's node and return its output."""
        tool = program(command, "slurm-client")
        variables = {**self.variables, **(more or {})}
        return said([*self.controller.inside, tool, *words], env=variables, status=status)


@dataclass(slots=True)
class Job:
    """A job of the shipped script."""

    cluster: Cluster
    options: Sequence[str]
    variables: Mapping[str, str]
    number: str = ""

    def start(self) -> None:
        """Submit it."""
        log = f"--output={self.cluster.folder / 'job-%j.log'}"
        words = ("--parsable", log, *self.options, SCRIPT)
        self.number = self.cluster.ask("sbatch", *words, more=self.variables).strip()

    def drain(self) -> None:
        """Signal its steps as SLURM does before the time limit; it ends well and leaves nothing."""
        self.cluster.ask("scancel", "--signal=TERM", self.number)
        until(lambda: not re.search(r"JobState=(RUNNING|COMPLETING)", self._shown()), "it ends")
        found = re.search(r"JobState=(\w+).*?ExitCode=(\S+)", self._shown(), re.DOTALL)
        ended = None if found is None else found.groups()
        check(ended == ("COMPLETED", "0:0"), f"the job ended with {ended}")
        left = [path.name for path in self.cluster.folder.glob("tmp/penstock-*")]
        check(not left, f"the job left {left}")

    def cancel(self) -> None:
        """Be gone at the end of the part."""
        self.cluster.ask("scancel", self.number, status=None)
        until(lambda: not self.cluster.ask("squeue", "--noheader").strip(), "the queue is empty")

    def _shown(self) -> str:
        return self.cluster.ask("scontrol", "show", "job", self.number)


def run(folder: Path) -> Ran:
    """The study on one node, which gives the job two of its CPUs, or the one it has."""
    version = said([program("slurmctld", "slurm-wlm munge"), "-V"])
    cpus = len(os.sched_getaffinity(0))
    name = socket.gethostname().partition(".")[0]
    node, devices = Node(name, "127.0.0.1", cpus), min(2, cpus)
    with processes(folder) as running:
        cluster = Cluster(folder, running, node, [node])
        cluster.start()
        url = start_broker(running)
        site = start_scheduler(running, folder, broker=url)
        options = [f"--cpus-per-task={devices}", "--time=10"]
        job = Job(cluster, options, job_environment(folder, url))
        try:
            words = carry_through(site, job, write_script(folder), devices)
        finally:
            job.cancel()
    return Ran(version.strip(), f"sbatch on one node; {words}; nothing left behind")


def job_environment(folder: Path, broker: str) -> dict[str, str]:
    """Return the variables of a user's shell: the script's settings and the scratch folder."""
    settings = folder / "penstock.env"
    settings.write_text(f"PENSTOCK_BROKER='{broker}'\n")
    settings.chmod(0o600)
    (folder / "tmp").mkdir()
    own = environment(folder / "user")
    del own["PENSTOCK_HOME"]  # the script gives each job one
    return own | {"PENSTOCK_ENV": str(settings), "TMPDIR": str(folder / "tmp")}
