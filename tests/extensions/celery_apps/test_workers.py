"""Workers of a user's Celery app serve devices: real ones, of each pool, on a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter

import psutil
import pytest
from machines.network import PASSWORD, answering_broker
from patience import PATIENCE, until
from penstock import FullBudget, create_study
from penstock.app.broker import presence
from penstock.app.host import locks
from penstock.scheduler.model.events import AttemptLost
from servers.installation import Installation, serving, variables_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]

APP = """
    import os
    import time

    import penstock
    import redis
    from celery import Celery

    app = Celery("shop", broker=os.environ["SHOP_BROKER"])
    app.conf.update(broker_connection_retry_on_startup=True, worker_pool_restarts=True)
    penstock.celery.install(app, devices=os.environ.get("SHOP_DEVICES", "cpu:1x1"))


    @app.task(shared=False)  # later shops of a test process are other apps
    def order(number):
        redis.Redis.from_url(os.environ["SHOP_BROKER"]).rpush("orders", number)


    @app.task(shared=False)
    def tune():
        study = penstock.create_study(sampler="random")
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
        order(study.best_value)


    @penstock.epoch_function
    def slow(trial):
        trial.load()
        for epoch in trial.epochs():
            if not os.path.exists(os.path.join(os.path.dirname(__file__), "hurry")):
                time.sleep(0.3)
            trial.report({"accuracy": epoch}, checkpoint={"epoch": epoch})
"""
#: The epochs of a study that outlasts what is done meanwhile, until the file ``hurry`` is there.
LONG = 200
POOLS = ["prefork", "threads", "solo", "gevent"]


class Shop:
    """A machine with workers of the shop, and another one with the scheduler."""

    def __init__(self, folder, url, client) -> None:
        self.folder, self.url, self.client = folder, url, client
        # The scheduler's hold must not lapse on a busy machine: a study would start another one.
        self.common = {"broker": url, "store": f"file://{folder / 'store'}", "lease_ms": 20_000}
        self.head = Installation(folder / "head", node="head", devices="cpu:1x1", **self.common)
        self.node = Installation(folder / "node", node="node", lease_ms=20_000)
        self.other = Installation(folder / "other", node="node", lease_ms=20_000)
        (folder / "shop.py").write_text(textwrap.dedent(APP))
        self.workers = []

    @property
    def environment(self):
        """The shell in which the shop's workers are started, which names no broker for Penstock."""
        own = {
            name: value
            for name, value in self.node.environment.items()
            if name not in ("PENSTOCK_BROKER", "PENSTOCK_DEVICES")
        }
        store = {"PENSTOCK_STORE": self.common["store"]}
        return {**own, **store, "SHOP_BROKER": self.url, "C_FORCE_ROOT": "1"}

    def celery(self, *arguments, **options):
        command = [sys.executable, "-P", "-m", "celery", "-A", "shop", *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **options)

    def worker(self, pool, *arguments, name="one"):
        """A worker of the shop; ``log(name)`` is what it says."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = self.celery(
                *("worker", "--pool", pool, "--concurrency", "2", "--loglevel", "INFO"),
                *("--hostname", f"{name}@shop", *arguments),
                stdout=log,
                stderr=log,
            )
        self.workers.append(process)
        return process

    def log(self, name="one"):
        return (self.folder / f"{name}.log").read_text()

    def schedule(self):
        """``penstock scheduler`` on the other machine, which serves from here on."""
        with (self.folder / "scheduler.log").open("wb") as log:
            process = self.head.start("scheduler", stdout=log, stderr=log)
        self.workers.append(process)
        self.until(lambda: presence.is_served(self.client, self.url), "the scheduler serves")

    def send(self, task, *arguments):
        given = ("call", f"shop.{task}", "--args", json.dumps(arguments))
        assert self.celery(*given, stdout=subprocess.DEVNULL).wait(PATIENCE) == 0

    def orders(self):
        return self.client.lrange("orders", 0, -1)

    def submit(self, epochs, trials=1):
        """The id of a study of that many epochs of a third of a second."""
        sys.path.insert(0, str(self.folder))
        with variables_of(self.head), pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHOP_BROKER", self.url)
            import shop

            study = create_study(
                metric="accuracy",
                direction="maximize",
                sampler="random",
                strategy=FullBudget(epochs),
            )
            study.submit(shop.slow, {"x": [1, 2, 3]}, n_trials=trials)
        return study.id

    def trained(self, study):
        """Return by trial and epoch how many times it was accepted."""
        return Counter((row.trial, row.epoch) for row in self.head.reader.epochs(study))

    def lost(self, study):
        return self.head.reader.of_trials(study, AttemptLost)

    def agent(self):
        return locks.pid_of(self.node.settings.run, "agent")

    def gone(self):
        """Tell whether nothing of Penstock runs on the workers' machine."""
        run = self.node.settings.run
        held = [path.stem for path in run.glob("*.lock") if locks.is_running(run, path.stem)]
        return not held

    def until(self, holds, what):
        return until(holds, what, self.logs)

    def logs(self):
        own = [f"== {path.name}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log")]
        return "\n".join([*own, self.node.logs() if self.node.settings.logs.exists() else ""])

    def close(self):
        for process in self.workers:
            if process.poll() is None:
                process.kill()
            process.wait()
        sys.modules.pop("shop", None)
        if str(self.folder) in sys.path:
            sys.path.remove(str(self.folder))
        for site in (self.node, self.other, self.head):
            site.close()
        self.until(self.gone, "nothing is left")


def has_ended(pid):
    """Tell whether a process has ended, also if nobody has waited for it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def shop(tmp_path):
    with answering_broker() as (url, client):
        shop = Shop(tmp_path, url, client)
        yield shop
        shop.close()


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_serves_a_device_next_to_its_tasks_and_drains_it(shop, pool):
    shop.schedule()
    worker = shop.worker(pool)
    shop.until(lambda: serving(shop.head) == {"node"}, "the device joins")
    study = shop.submit(epochs=3, trials=2)
    for number in range(3):
        shop.send("order", number)
    assert shop.head.wait(study).status == "complete"
    shop.until(lambda: shop.orders() == ["0", "1", "2"], "the shop's own tasks")
    (known,) = shop.head.reader.devices()
    assert known.device.kind == "cpu"
    assert len(known.device.cores) == 1

    study = shop.submit(epochs=LONG)
    shop.until(lambda: len(shop.trained(study)) >= 2, "a study trains")
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    assert shop.gone()
    assert not shop.lost(study), "the epoch at work was ended"
    assert len(shop.trained(study)) < LONG
    (shop.folder / "hurry").touch()
    shop.worker(pool)
    assert shop.head.wait(study).status == "complete"
    assert set(shop.trained(study).values()) == {1}
    assert PASSWORD not in shop.log() + shop.node.log("agent")


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_that_is_killed_takes_its_devices_along_and_the_next_goes_on(shop, pool):
    shop.schedule()
    worker = shop.worker(pool)
    shop.until(lambda: serving(shop.head) == {"node"}, "the device joins")
    study = shop.submit(epochs=LONG)
    shop.until(lambda: len(shop.trained(study)) >= 2, "a study trains")
    worker.kill()
    worker.wait()
    shop.until(shop.gone, "what served the device ends")
    assert "asked to stop again: not waiting" in shop.node.log("agent")
    assert len(shop.trained(study)) < LONG
    (shop.folder / "hurry").touch()
    shop.worker(pool)
    assert shop.head.wait(study).status == "complete"
    assert len(shop.trained(study)) == LONG
    assert set(shop.trained(study).values()) == {1}


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_of_the_worker_tunes_on_the_device_that_it_serves(shop, pool):
    """Studies of its tasks are on the app's broker, although nothing has named it for Penstock."""
    shop.worker(pool)
    shop.until(shop.agent, "an agent")
    agent = shop.agent()
    shop.send("tune")
    shop.until(lambda: len(shop.orders()) == 1, "the study's best value")
    assert shop.client.exists("penstock:installation")
    assert shop.agent() == agent
    assert "worker --devices cpu:1x1" in " ".join(psutil.Process(agent).cmdline())


def test_two_workers_on_a_machine_make_one_agent_and_the_second_takes_over(shop):
    shop.schedule()
    first = shop.worker("prefork")
    shop.until(lambda: serving(shop.head) == {"node"}, "the device joins")
    agent = shop.agent()
    second = shop.worker("threads", name="two")
    said = f"process {agent} serves this machine's devices already"
    shop.until(lambda: said in shop.log("two"), "the second one says so")
    study = shop.submit(epochs=LONG)
    shop.until(lambda: len(shop.trained(study)) >= 2, "a study trains")
    first.terminate()
    assert first.wait(PATIENCE) == 0
    shop.until(lambda: shop.agent() not in (None, agent), "the second one takes over")
    assert shop.log("two").count("serves this machine's devices already") == 1
    (shop.folder / "hurry").touch()
    assert shop.head.wait(study).status == "complete"
    assert not shop.lost(study)
    (shop.folder / "hurry").unlink()
    # The cold end: the agent does not wait for its trials.
    study = shop.submit(epochs=LONG)
    shop.until(lambda: len(shop.trained(study)) >= 2, "a study trains")
    second.send_signal(signal.SIGQUIT)
    second.wait(PATIENCE)
    shop.until(shop.gone, "what served the device ends")
    assert "asked to stop again: not waiting" in shop.node.log("agent")


def test_a_worker_of_another_state_folder_says_that_the_devices_are_served(shop, monkeypatch):
    shop.schedule()
    first = shop.worker("threads")
    shop.until(lambda: serving(shop.head) == {"node"}, "the device joins")
    known = shop.head.reader.devices()
    monkeypatch.setattr(shop, "node", shop.other)
    second = shop.worker("threads", name="two")
    said = "is served to this broker from another state folder"
    shop.until(lambda: said in shop.log("two"), "the second one says so")
    shop.send("order", 1)
    shop.until(lambda: shop.orders() == ["1"], "the shop's own task")
    assert shop.head.reader.devices() == known
    first.terminate()
    assert first.wait(PATIENCE) == 0
    shop.until(shop.agent, "the second one takes over")
    second.terminate()
    assert second.wait(PATIENCE) == 0


def test_what_restarts_the_pool_ends_no_trial(shop):
    shop.schedule()
    # No process of a pool is within a memory of 1 MB after a task.
    limits = ("--max-memory-per-child", "1000", "--max-tasks-per-child", "3")
    shop.worker("prefork", *limits, "--autoscale", "3,1")
    shop.until(lambda: serving(shop.head) == {"node"}, "the device joins")
    agent = shop.agent()
    study = shop.submit(epochs=30)
    shop.until(lambda: len(shop.trained(study)) >= 2, "a study trains")
    for number in range(4):
        shop.send("order", number)
    restart = shop.celery("control", "pool_restart", stdout=subprocess.DEVNULL)
    assert restart.wait(PATIENCE) == 0
    for number in range(4, 8):
        shop.send("order", number)
    shop.until(lambda: len(shop.orders()) == 8, "the shop's own tasks")
    assert shop.head.wait(study).status == "complete"
    assert not shop.lost(study)
    assert shop.agent() == agent


def test_what_is_killed_of_it_is_started_again_by_what_is_left(shop):
    shop.schedule()
    worker = shop.worker("prefork")
    shop.until(lambda: serving(shop.head) == {"node"}, "the device joins")
    agent = shop.agent()
    os.kill(agent, signal.SIGKILL)
    shop.until(lambda: shop.agent() not in (None, agent), "another agent")
    words = "what serves this machine's devices ended (signal 9)"
    shop.until(lambda: words in shop.log(), "the worker says so")
    agent = shop.agent()
    keeper = psutil.Process(agent).parent()
    assert keeper.ppid() == worker.pid
    keeper.kill()
    shop.until(lambda: shop.agent() not in (None, agent), "an agent of another keeper")
    shop.until(lambda: has_ended(agent), "the first one's agent ends")
    shop.until(lambda: "what keeps this worker's devices served ended" in shop.log(), "it says so")
    study = shop.submit(epochs=2)
    assert shop.head.wait(study).status == "complete"


def test_a_worker_whose_devices_cannot_be_served_says_why_and_does_its_tasks(shop, monkeypatch):
    monkeypatch.setenv("SHOP_DEVICES", "gpu:63")
    worker = shop.worker("prefork")
    shop.until(lambda: "'gpu:63'" in shop.log(), "the reason")
    shop.send("order", 1)
    shop.until(lambda: shop.orders() == ["1"], "the shop's own task")
    (line,) = [line for line in shop.log().splitlines() if "ERROR" in line and "gpu:63" in line]
    assert "this machine has" in line
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
