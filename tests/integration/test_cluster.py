"""An installation in parts, as deploy/ starts them: each with a state folder of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pytest
from patience import PATIENCE
from penstock.app.broker import server
from penstock.app.host import locks
from penstock.app.host.settings import load
from prometheus_client.parser import text_string_to_metric_families
from servers.installation import Installation, serving

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SLURM = Path(__file__).parents[2] / "deploy/slurm/workers.sbatch"
SCRIPT = """
import time
import penstock

def objective(trial):
    x = trial.suggest_float("x", -1, 1)
    for step in range(3):
        time.sleep(0.05)
        trial.report(x * x + step, step)
    return x * x

if __name__ == "__main__":
    study = penstock.create_study(study_name="parts", sampler="random")
    study.optimize(objective, n_trials=6)
    print("best", study.best_value)
"""
#: A stand-in for SLURM's ``srun`` on one node with one task; its own options come first.
SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'
#: On the path as in an environment that is active.
PENSTOCK = f'#!/bin/sh\nexec {sys.executable} -P -m penstock "$@"\n'


def scraped(port):
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            families = [*text_string_to_metric_families(answer.read().decode())]
    except URLError:  # it has not begun to listen
        return None
    return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}


def test_scheduler_slurm_workers_metrics_and_a_user_each_on_their_own(tmp_path):
    own = load(home=tmp_path / "broker")
    own.ensure_home()
    server.start(own)
    parts = {"broker": server.broker_url(own), "ledger": f"sqlite:///{tmp_path}/operator/ledger.db"}
    operator, metrics, user = (
        Installation(tmp_path / name, **parts) for name in ("operator", "metrics", "user")
    )
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("penstock", PENSTOCK)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    settings = tmp_path / "penstock.env"
    settings.write_text(f"PENSTOCK_BROKER='{parts['broker']}'\nPENSTOCK_DEVICES=cpu:1x1*2\n")
    slurm = {"PENSTOCK_ENV": settings, "SLURM_JOB_ID": "17", "TMPDIR": tmp_path}
    slurm["PATH"] = f"{tools}:{os.environ['PATH']}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    worker = subprocess.Popen(
        ["bash", SLURM], env={**os.environ, **slurm}, stdout=subprocess.DEVNULL, stderr=2
    )
    others = [operator.start("scheduler"), metrics.start("metrics", "--port", port)]
    try:
        [node] = operator.until(lambda: serving(operator), "a worker joins")
        assert node.endswith("-17")
        assert (tmp_path / f"penstock-{node}").is_dir()
        assert "best" in user.finish(user.python(script))
        # Who only uses what an operator runs starts nothing.
        assert [part for part in (user, operator) if (part.settings.run / "up.json").exists()] == []
        assert not locks.is_running(user.settings.run, "scheduler")

        found = metrics.until(lambda: scraped(port), "the metrics are served")
        assert found["penstock_scheduler_up",] == found["penstock_broker_up",] == 1
        assert found["penstock_epochs_total", "accepted"] >= 18
        assert found["penstock_slots", "idle"] == 2
        assert {value for key, value in found.items() if key[0] == "penstock_queued_tasks"} == {0}
        for name in ("dispatch_to_claim", "claim_to_accept"):
            assert found[f"penstock_{name}_seconds_count",] > 0
        waits = found["penstock_dispatch_to_claim_seconds_sum",]
        assert 0 < waits < 5 * found["penstock_dispatch_to_claim_seconds_count",]

        [step] = psutil.Process(worker.pid).children()
        step.send_signal(signal.SIGTERM)  # as SLURM does before the time limit
        assert worker.wait(PATIENCE) == 0
        assert not list(tmp_path.glob(f"penstock-{node}"))
        operator.until(lambda: not serving(operator), "the worker leaves")
        left = scraped(port)
        assert (left["penstock_devices", "left"], left["penstock_devices", "joined"]) == (1, 0)
    finally:
        for process in (worker, *others):
            process.terminate()
            process.wait(PATIENCE)
        for process in others:
            process.communicate()
        server.stop(own)
