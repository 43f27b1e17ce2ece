"""A task that tunes on the device that its own worker serves, in each of Celery's pools.

This file is the user's app, and what drives a worker of it. The worker is told nothing but the
broker: ``penstock.celery.install`` takes the app's, and so do the studies of its tasks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import penstock
import redis
from celery import Celery  # noqa: TID251 - it is a user's app
from penstock.app.broker import connection, server
from penstock.app.host.settings import Settings
from penstock.app.server.services import services

POOLS = ("prefork", "threads", "solo", "gevent", "eventlet")
#: Trials of the study, and tasks of the app that run next to it.
TRIALS, ORDERS = 10, 20
#: Seconds in which one pool must be through.
LIMIT = 300.0
_BROKER, _TOLD = "BENCH_BROKER", "bench:told"

app = Celery("bench", broker=os.environ.get(_BROKER))
app.conf.broker_connection_retry_on_startup = True
penstock.celery.install(app, devices="cpu:1x1")


@app.task
def order(number: int) -> None:
    """Do some work that is no training."""
    _client().hset(_TOLD, f"order {number}", 1)


@app.task
def tune() -> None:
    """Run a study, and say how many of its trials are complete."""
    study = penstock.create_study(sampler="random")
    study.optimize(objective, n_trials=TRIALS)
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    _client().hset(_TOLD, "completed", len(complete))


def objective(trial: Any) -> float:
    """Train for a twentieth of a second."""
    time.sleep(0.05)
    return float(trial.suggest_float("x", 0, 1))


def pools(tell: Callable[[str], None] = lambda _: None) -> dict[str, dict[str, Any]]:
    """Return for each pool that is installed what was completed, of how much, and in what time.

    Raises RuntimeError if a pool does not come to an end.
    """
    figures = {}
    for pool in POOLS:
        if pool in POOLS[:3] or find_spec(pool) is not None:
            tell(f"{pool}: a task that tunes")
            figures[pool] = _pool(pool)
    return figures


def _pool(pool: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-pools-") as folder:
        broker = Settings(home=Path(folder) / "broker")
        broker.ensure_home()
        server.start(broker)
        settings = Settings(home=Path(folder) / "home", broker=server.broker_url(broker))
        own = {_BROKER: server.broker_url(broker), "PENSTOCK_HOME": str(settings.home)}
        try:
            with (Path(folder) / "worker.log").open("wb") as log:
                worker = subprocess.Popen(
                    [
                        *(sys.executable, "-P", "-m", "celery", "-A", __name__, "worker"),
                        *("--pool", pool, "--concurrency", "2", "--loglevel", "WARNING"),
                    ],
                    env={**os.environ, **own, "C_FORCE_ROOT": "1"},
                    stdout=log,
                    stderr=log,
                )
            try:
                return _driven(own[_BROKER], pool)
            finally:
                worker.terminate()
                worker.wait(LIMIT)
                services.take_down(settings)
        finally:
            server.stop(broker)


def _driven(url: str, pool: str) -> dict[str, Any]:
    """Send the tasks to a worker, and wait until all are done."""
    began = time.monotonic()
    with Celery("bench", broker=url) as sender, connection.connect(url) as client:
        sender.send_task(f"{__name__}.tune")
        for number in range(ORDERS):
            sender.send_task(f"{__name__}.order", (number,))
        while client.hlen(_TOLD) < ORDERS + 1:
            if time.monotonic() - began > LIMIT:
                raise RuntimeError(f"{pool}: the tasks are not done in {LIMIT:g} s")
            time.sleep(0.05)
        completed = int(client.hget(_TOLD, "completed"))
    seconds = time.monotonic() - began
    return {"completed": completed, "trials": TRIALS, "orders": ORDERS, "seconds": seconds}


def _client() -> redis.Redis:
    return connection.connect(os.environ[_BROKER])
