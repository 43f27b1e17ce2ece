"""SLURM on two nodes: a job with a worker on each, and trials that are on both."""

from __future__ import annotations

import socket
from pathlib import Path

from penstock.testkit.random_widths import RANDOM_WIDTHS

from benchmarks.deploy_check.namespaces import hosts
from benchmarks.deploy_check.operator import start_broker, start_scheduler
from benchmarks.deploy_check.parts import Ran, program, said
from benchmarks.deploy_check.processes import processes
from benchmarks.deploy_check.slurm import Cluster, Job, Node, job_environment
from benchmarks.deploy_check.study import carry_through, write_script


def run(folder: Path) -> Ran:
    """Broker, scheduler and controller are on a node of their own, as on a service node."""
    version = said([program("slurmctld", "slurm-wlm munge"), "-V"])
    own = socket.gethostname().partition(".")[0]
    with hosts(own, "n1", "n2") as made, processes(folder) as running:
        (address, inside), *others = made.values()
        head = Node(own, address, 1, inside)
        nodes = [Node(f"n{i}", at, 1, enter) for i, (at, enter) in enumerate(others, start=1)]
        cluster = Cluster(folder, running, head, nodes)
        cluster.start()
        url = start_broker(running, address, inside)
        site = start_scheduler(running, folder, inside, broker=url, policy=RANDOM_WIDTHS)
        options = ["--nodes=2", "--cpus-per-task=1", "--time=10"]
        job = Job(cluster, options, job_environment(folder, url))
        try:
            words = carry_through(site, job, write_script(folder), 2, width=2)
        finally:
            job.cancel()
    return Ran(version.strip(), f"sbatch on two nodes, trials on both at once; {words}")
