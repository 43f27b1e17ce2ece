"""The ledger on PostgreSQL: a scheduler, and a user with a state folder of its own who reads it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from benchmarks.deploy_check.operator import (
    AgentProcess,
    environment,
    start_broker,
    start_scheduler,
)
from benchmarks.deploy_check.parts import Missing, Ran, check, said
from benchmarks.deploy_check.processes import processes
from benchmarks.deploy_check.study import TRIALS, carry_through, write_script
from testkit import postgres


def run(folder: Path) -> Ran:
    """The study; then `ls`, `best` and `export` where nothing but the two URLs is known."""
    binaries = postgres.find_binaries()
    if binaries is None:
        raise Missing("no PostgreSQL server: apt install --no-install-recommends postgresql")
    version = said([binaries / "postgres", "--version"])
    # The processes come last and end first: each talks with the server until its end.
    with postgres.server() as server, processes(folder) as running:
        both = {"broker": start_broker(running), "ledger": server.create("penstock")}
        operator = start_scheduler(running, folder, **both)
        user = replace(operator, environment=environment(folder / "user", **both))
        node = environment(folder / "node", broker=both["broker"], devices="cpu:1x1")
        words = carry_through(user, AgentProcess(running, node), write_script(folder), 1)
        for command in (["ls"], ["best", "--json"]):
            said([*user.penstock, *command], env=user.environment)
        rows = said([*user.penstock, "export", "--format", "csv"], env=user.environment)
        check(len(rows.splitlines()) == TRIALS + 1, f"the export has other trials:\n{rows}")
        check(not list(folder.rglob("ledger.db")), "there is a file of SQLite beside it")
    number = re.search(r"[\d.]+", version)
    return Ran(f"PostgreSQL {number[0] if number else version}", f"{words}; read by another user")
