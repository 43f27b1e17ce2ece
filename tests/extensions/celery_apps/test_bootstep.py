"""The step of a user's worker without a worker: its settings, what it logs, what ends with whom."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import penstock
import psutil
import pytest
from celery import Celery  # noqa: TID251 - it is a user's app
from patience import PATIENCE, until
from penstock.extensions.celery_apps import agent_keeper, bootstep
from penstock.extensions.celery_apps.bootstep import ServedDevices


@pytest.fixture(autouse=True)
def shell(monkeypatch, tmp_path):
    """A shell without settings, and a state folder; what the step sets is undone."""
    for name in [*os.environ]:
        if name.startswith(("PENSTOCK_", "CELERY_")):
            monkeypatch.delenv(name)
    for name in bootstep._TOLD:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))


def served(url, devices="auto"):
    return ServedDevices(SimpleNamespace(app=Celery("shop", broker=url)), devices)


def test_it_takes_the_broker_of_the_app_and_tells_the_workers_tasks():
    settings = served("redis://:s3cret@shop:6379/2", "cpu:1x1")._settings
    assert settings.broker == os.environ["PENSTOCK_BROKER"] == "redis://:s3cret@shop:6379/2"
    assert settings.devices == os.environ["PENSTOCK_DEVICES"] == "cpu:1x1"


def test_what_is_set_for_penstock_goes_first(monkeypatch):
    monkeypatch.setenv("PENSTOCK_BROKER", "redis://tuning:6379/0")
    monkeypatch.setenv("PENSTOCK_DEVICES", "cpu:1x2")
    settings = served("redis://shop:6379/0")._settings
    assert (settings.broker, settings.devices) == ("redis://tuning:6379/0", "cpu:1x2")
    assert served("redis://shop:6379/0", "cpu:2x1")._settings.devices == "cpu:2x1"
    # It may be the very one for which no broker of the app's could serve.
    assert served("amqp://shop//")._settings.broker == "redis://tuning:6379/0"


def test_a_broker_that_cannot_carry_penstock_leaves_the_worker_as_it_is(caplog):
    devices = served("amqp://guest:s3cret@shop//")
    devices.start()
    devices.terminate()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "this worker serves no devices: the broker of the Celery app shop = " in record.message
    assert "RabbitMQ runs none. Give Penstock a Redis or Valkey" in record.message
    assert "s3cret" not in record.message
    assert os.environ["PENSTOCK_BROKER"] == ""


def test_a_keeper_that_cannot_be_started_is_tried_again_and_the_worker_goes_on(caplog, monkeypatch):
    devices = served("redis://shop:6379/0")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    devices._look()
    devices._look()
    assert caplog.text.count("cannot be started: ") == 2
    assert devices._restarts.early == 2
    devices._look()
    assert devices._restarts.early == 2, "it waits before the third time"


def test_a_second_install_is_one_step():
    app = Celery("shop", broker="redis://shop:6379/0")
    penstock.celery.install(app)
    penstock.celery.install(app)
    assert len({step.name for step in app.steps["worker"]}) == 1


def test_celery_finds_our_own_app_next_to_what_is_for_users():
    from celery.app.utils import find_app  # noqa: TID251 - as `celery -A` does it

    assert penstock.celery.__name__ == "penstock.extensions.celery_apps.names"
    assert find_app("penstock").main == "penstock"
    with pytest.raises(AttributeError, match="no attribute 'instal'"):
        _ = penstock.celery.instal


def test_a_keeper_whose_worker_is_gone_starts_nothing(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    program = [sys.executable, "-P", "-m", agent_keeper.__name__, str(other.pid)]
    subprocess.run(program, check=True, timeout=PATIENCE)
    other.communicate()
    subprocess.run(program, check=True, timeout=PATIENCE)
    assert not (tmp_path / "home").exists()


def test_a_bound_program_ends_with_its_starter_by_a_signal(tmp_path):
    starts = (
        "import os, subprocess, sys; program = [sys.executable, '-P', '-m',"
        " 'penstock.extensions.celery_apps.bound', str(os.getpid()), sys.executable, '-c',"
        " 'import os, time; print(os.getpid(), flush=True); time.sleep(3600)'];"
        " subprocess.Popen(program); input()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-P", "-c", starts], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    bound = psutil.Process(int(starter.stdout.readline()))
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    until(lambda: not bound.is_running() or bound.status() == psutil.STATUS_ZOMBIE, "it ends")
