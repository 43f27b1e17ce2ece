"""Prometheus with the shipped configuration and rules, scraping a real ``penstock metrics``.

The configuration names its target ``metrics:9917``, as Compose does. So Prometheus runs where that
name is this machine: in a mount namespace with a hosts file of its own.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from benchmarks.deploy_check.operator import (
    AgentProcess,
    environment,
    start_broker,
    start_scheduler,
)
from benchmarks.deploy_check.parts import DEPLOY, Failed, Missing, Ran, check, program, said, until
from benchmarks.deploy_check.processes import Processes, answers, free_ports, processes
from benchmarks.deploy_check.study import EPOCHS, TRIALS, carry_through, write_script

#: Port of ``penstock metrics`` in the shipped configuration.
PORT = 9917
_DASHBOARD = DEPLOY / "grafana/penstock.json"


class Server:
    """A Prometheus that runs, asked over HTTP."""

    def __init__(self, port: int) -> None:
        self._at = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer."""
        with urlopen(f"{self._at}/{path}?{urlencode(query)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float | None:
        """The one value of an expression; None where there is none."""
        found = self.ask("query", query=expression)["result"]
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def alerts(self) -> dict[str, str]:
        """The state of each alert that the rules have."""
        return {
            rule["name"]: rule["state"]
            for group in self.ask("rules")["groups"]
            for rule in group["rules"]
        }

    def target_is_up(self) -> bool:
        """Return True if the target of the configuration was scraped."""
        return [target["health"] for target in self.ask("targets")["activeTargets"]] == ["up"]


def with_hosts(folder: Path) -> list[str]:
    """Return words that run a command with ``metrics`` as this machine's name. Raises Missing."""
    unshare = [program("unshare", "util-linux"), "--mount", "--map-root-user"]
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost metrics\n")
    enter = [*unshare, "sh", "-c", f"mount --bind '{hosts}' /etc/hosts && exec \"$@\"", "sh"]
    try:
        said([*enter, "true"])
    except Failed:
        raise Missing("no mount namespaces: be root, or allow user namespaces") from None
    return enter


def start_prometheus(running: Processes, folder: Path) -> Server:
    """Start it on the shipped files."""
    prometheus, enter = program("prometheus", "prometheus"), with_hosts(folder)
    [port] = free_ports(1)
    options = (
        f"--config.file={DEPLOY / 'prometheus/prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    running.start("prometheus", [*enter, prometheus, *options])
    until(
        lambda: running.check_alive("prometheus") and answers("127.0.0.1", port),
        "Prometheus answers",
    )
    return Server(port)


def run(folder: Path) -> Ran:
    """The study, scraped; every panel's expression; an alert when the scheduler ends."""
    promtool, prometheus = program("promtool", "prometheus"), program("prometheus", "prometheus")
    said([promtool, "check", "config", DEPLOY / "prometheus/prometheus.yml"])
    version = re.search(r"version ([\d.]+)", said([prometheus, "--version"]))
    if answers("127.0.0.1", PORT):
        raise Missing(f"port {PORT}, which the configuration names, is in use here")
    with processes(folder) as running:
        both = {"broker": start_broker(running), "ledger": f"sqlite:///{folder}/ledger.db"}
        site = start_scheduler(running, folder, **both)
        until(site.is_there, "a scheduler makes its ledger")
        variables = environment(folder / "metrics", **both)
        running.start("metrics", [*site.penstock, "metrics"], variables)
        until(lambda: running.check_alive("metrics") and answers("127.0.0.1", PORT), "metrics")
        server = start_prometheus(running, folder)
        node = environment(folder / "node", broker=both["broker"], devices="cpu:1x1")
        words = carry_through(site, AgentProcess(running, node), write_script(folder), 1)
        until(server.target_is_up, "Prometheus has scraped its target")
        accepted = 'penstock_epochs_total{outcome="accepted"}'
        until(lambda: server.value(accepted) == TRIALS * EPOCHS, "all epochs are scraped")
        check(server.value('penstock_epochs_total{outcome="lost"}') == 0, "epochs were lost")
        check(server.value("penstock_broker_up") == 1, "the broker counts as down")
        alerts = server.alerts()
        check(set(alerts.values()) == {"inactive"}, f"alerts fire without a reason: {alerts}")
        panels, filled = ask_panels(server)
        running.end("scheduler")
        until(
            lambda: server.alerts()["PenstockSchedulerDown"] in {"pending", "firing"},
            "the alert notices that the scheduler is gone",
        )
    return Ran(
        f"Prometheus {version[1] if version else ''}",
        f"{words}; scraped; {len(alerts)} alerts read, one seen to rise;"
        f" {panels} expressions of the dashboard, {filled} with data",
    )


def ask_panels(server: Server) -> tuple[int, int]:
    """Ask for all of the dashboard's expressions; return their number, and how many have data."""
    expressions = expressions_of(json.loads(_DASHBOARD.read_text())["panels"])
    now = str(time.time())
    plain = [
        each.replace("$__rate_interval", "1m").replace("$instance", ".*") for each in expressions
    ]
    return len(plain), sum(
        bool(server.ask("query", query=each, time=now)["result"]) for each in plain
    )


def expressions_of(panels: Sequence[dict[str, Any]]) -> list[str]:
    """The PromQL of all panels."""
    return [target["expr"] for panel in panels for target in panel["targets"]]
