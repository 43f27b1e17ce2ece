"""A user's Celery app with its broker and its workers, all of which can be killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
from penstock.app.host.broker_program import find_server

#: Seconds until a broker must answer, or a process must have ended.
PATIENCE = 120.0

APP = """
    import json
    import os
    import signal
    import time
    from functools import partial

    from celery import Celery
    from penstock import celery, create_study

    wait_for = celery.wait_for  # so that its workers have the task
    BROKER = os.environ["SHOP_BROKER"]
    app = Celery("shop", broker=BROKER, backend=BROKER.removesuffix("/0") + "/1")
    app.conf.update(
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": 3},
    )
    # Celery gives a process's later apps each task that is shared, and tests load several shops.
    task = partial(app.task, shared=False)


    def note(what, request, **values):
        line = {"what": what, "id": request.id, **values}
        with open(os.environ["SHOP_LOG"], "a") as file:
            file.write(json.dumps(line) + "\\n")


    @task(bind=True)
    def deploy(self, model=None, study=None):
        if "SHOP_DIES" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        told = json.loads(self.request.headers["penstock_study"])
        note("deploy", self.request, model=model, study=study, told=told,
             again=self.request.headers["penstock_again"])
        return study


    @task(bind=True)
    def alert(self, study):
        note("alert", self.request, study=study)


    @task(bind=True)
    def clean_up(self):
        note("clean_up", self.request)


    @task(bind=True)
    def after(self, study):
        note("after", self.request, study=study)


    def objective(trial):
        return trial.suggest_float("x", 0.0, 1.0)


    def both(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        return x, x if trial.number % 2 else -x


    def gated(trial):
        while not os.path.exists(os.path.join(os.path.dirname(os.environ["SHOP_LOG"]), "gate")):
            time.sleep(0.02)
        return 0.5


    def fails(trial):
        raise RuntimeError("no such file: train.csv")


    @task(bind=True)
    def tune(self):
        study = create_study(sampler="random")
        study.optimize(objective, n_trials=2, show_progress=False)
        note("tune", self.request, best=study.best_value)
        return study.best_value


    @task(bind=True)
    def submit(self):
        study = create_study(sampler="random")
        study.submit(objective, n_trials=2)
        note("submit", self.request, study=study.id)
        return study.id


    @task(bind=True)
    def replaced(self):
        study = create_study(sampler="random")
        study.submit(objective, n_trials=2)
        raise self.replace(wait_for(study, every=0.2))


    @task(bind=True)
    def tune_in_vain(self):
        create_study(sampler="random").optimize(fails, n_trials=2, show_progress=False)


    app.conf.beat_schedule = {"nightly": {"task": "shop.submit", "schedule": 1.0}}
"""


class Broker:
    """A Valkey that has written down what it has acknowledged, also where it is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers with all that it had."""
        options = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder))
        durable = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
        self._process = subprocess.Popen(
            [find_server(), *options, *durable], stdout=subprocess.DEVNULL, cwd="/"
        )
        deadline = time.monotonic() + PATIENCE
        with self.client() as client:
            while True:
                with suppress(redis.ConnectionError):  # also: it loads its data
                    client.ping()
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError("the user's broker does not answer")
                time.sleep(0.02)

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def has_logged(self, text: str) -> bool:
        """Return whether a write that it has acknowledged had this text in it."""
        files = (self._folder / "appendonlydir").glob("*.aof")
        return any(text.encode() in file.read_bytes() for file in files)

    def client(self) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port, decode_responses=True)


class Shop:
    """The app in a folder of its own, and what its tasks have noted."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.broker = broker
        self.log = folder / "tasks.jsonl"
        (folder / "shop.py").write_text(textwrap.dedent(APP))

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the app reads."""
        return {"SHOP_BROKER": self.broker.url, "SHOP_LOG": str(self.log)}

    def noted(self, what: str) -> list[dict[str, Any]]:
        """Return what tasks of this name have noted so far."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [note for note in map(json.loads, lines) if note["what"] == what]

    def start(
        self, *arguments: str, app: str = "shop", environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start ``celery -A APP ARGUMENTS``; what it says is in ``celery.log``."""
        command = [sys.executable, "-P", "-m", "celery", "-A", app, *arguments]
        with (self.folder / "celery.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **self.variables, **(environment or {})},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextmanager
    def working(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker for the time of the block."""
        process = self.start("worker", "-l", "INFO", *arguments, environment=environment)
        try:
            yield process
        finally:
            end([process])

    def said(self) -> str:
        """Return what workers have said."""
        log = self.folder / "celery.log"
        return log.read_text(errors="replace")[-5000:] if log.exists() else ""


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill processes with their children, and wait for their ends."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


@contextmanager
def shop_in(folder: Path) -> Iterator[Shop]:
    """Yield a shop whose broker runs."""
    (folder / "broker").mkdir()
    broker = Broker(folder / "broker")
    broker.start()
    try:
        yield Shop(folder / "shop", broker)
    finally:
        broker.kill()
