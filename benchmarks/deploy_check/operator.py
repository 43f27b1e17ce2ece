"""A scheduler as an operator runs it, from this checkout, for parts that test something else."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.app.host.broker_program import find_server

from benchmarks.deploy_check.parts import check, until
from benchmarks.deploy_check.processes import Processes, answers, free_ports
from benchmarks.deploy_check.study import Site

#: The password of the brokers here.
PASSWORD = secrets.token_urlsafe(12)
#: ``penstock`` from this checkout, and its Python.
_PYTHON = (sys.executable, "-P")
_PENSTOCK = (*_PYTHON, "-m", "penstock")


def environment(home: Path, **settings: str) -> dict[str, str]:
    """This process's environment with these settings of Penstock, and no others of it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    # The command is on the path, as in an environment that is active.
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
    ours = {f"PENSTOCK_{name.upper()}": value for name, value in settings.items()}
    return kept | {"PENSTOCK_HOME": str(home), "COLUMNS": "400"} | ours


def start_broker(running: Processes, address: str = "127.0.0.1", inside: Sequence[str] = ()) -> str:
    """Start a broker that asks for a password; its URL."""
    [port] = free_ports(1)
    options = ("--bind", address, "--port", str(port), "--requirepass", PASSWORD, "--save", "")
    running.start("broker", [*inside, find_server(), *options], cwd="/")
    if not inside:
        until(lambda: answers(address, port), "the broker answers")
    return f"redis://:{PASSWORD}@{address}:{port}/0"


def start_scheduler(
    running: Processes, folder: Path, inside: Sequence[str] = (), **settings: str
) -> Site:
    """Start ``penstock scheduler`` with these settings; where a user reads its ledger."""
    store = {"store": f"file://{folder / 'checkpoints'}"}
    variables = environment(folder / "operator", **store | settings)
    running.start("scheduler", [*inside, *_PENSTOCK, "scheduler"], variables)
    return Site([*inside, *_PENSTOCK], [*inside, *_PYTHON], variables)


@dataclass(slots=True)
class AgentProcess:
    """``penstock worker`` as a process of this machine."""

    running: Processes
    variables: dict[str, str]

    def start(self) -> None:
        """Have it join."""
        self.running.start("worker", [*_PENSTOCK, "worker"], self.variables)

    def drain(self) -> None:
        """Send SIGTERM, and wait."""
        status = self.running.end("worker")
        check(status == 0, f"the worker ended with {status}:\n{self.running.log('worker')[-2000:]}")
