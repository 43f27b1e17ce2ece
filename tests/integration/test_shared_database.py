"""Two installations and Celery apps in one database, each with a prefix of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest
from celery import Celery  # noqa: TID251 - a user's
from machines.network import PASSWORD, answering_broker
from patience import PATIENCE, until
from penstock.app.broker import fitness
from penstock.extensions.exports.prometheus import Collector
from servers.installation import Installation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: A user's app with a prefix, whose script tunes on the app's broker.
APP = """
    import os

    from celery import Celery

    app = Celery("shop", broker=os.environ["SHOP_BROKER"])
    app.conf.broker_transport_options = {"global_keyprefix": os.environ["SHOP_PREFIX"]}


    @app.task
    def order(number):
        raise AssertionError("an order of the shop ran in a worker of Penstock's")


    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        for epoch in range(3):
            trial.report(x, epoch)
        return x


    if __name__ == "__main__":
        import penstock

        order.delay(1)
        study = penstock.create_study()
        study.optimize(objective, n_trials=6)
        print("best", study.best_value)
"""
PREFIXES = ("shop:", "test:")
USER, WORD = "penstock", "s3cret"
#: Commands that redis-py and a check of ours do without where their user may not send them.
UNASKED = ("client|setinfo", "config|get")


@pytest.fixture
def broker():
    with answering_broker() as served:
        yield served


@pytest.fixture
def script(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    path = folder / "shop.py"
    path.write_text(textwrap.dedent(APP))
    return path


@pytest.fixture
def installed(tmp_path):
    """Make installations by the URL of their broker."""
    sites = []

    def install(url):
        home = tmp_path / f"home{len(sites)}"
        sites.append(Installation(home, devices="cpu:1x1", broker=url))
        return sites[-1]

    yield install
    for site in sites:
        site.close()


def start(site, script, url, prefix):
    variables = {
        "PENSTOCK_BROKER": "celery",
        "PENSTOCK_CELERY_APP": "shop",
        "SHOP_BROKER": url,
        "SHOP_PREFIX": prefix,
    }
    return site.python(script, cwd=script.parent, env={**site.environment, **variables})


def pings(site):
    """Return the answers of the installation's workers to `celery -A penstock inspect ping`."""
    ping = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "penstock", "inspect", "ping", "-t", "5"],
        env=site.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return ping.stdout + ping.stderr


def test_two_studies_at_once_in_one_database(broker, installed, script):
    url, client = broker
    sites = [installed(f"{url}?global_keyprefix={prefix}") for prefix in PREFIXES]
    processes = [
        start(site, script, url, prefix) for site, prefix in zip(sites, PREFIXES, strict=True)
    ]
    for site, process in zip(sites, processes, strict=True):
        assert "best 0." in site.finish(process)
    keys = client.keys("*")
    assert [key for key in keys if not key.startswith(PREFIXES)] == []
    for prefix in PREFIXES:
        assert {f"{prefix}celery", f"{prefix}penstock:installation"} <= {*keys}
        assert client.llen(f"{prefix}celery") == 1
        assert f"{prefix}penstock:calls" in client.pubsub_channels()
    for site in sites:
        assert site.settings.home.joinpath("ledger.db").exists()
        # Its own worker answers, and not the neighbour's.
        assert pings(site).count("pong") == 1
        doctor = site.penstock("doctor")
        assert "***@127.0.0.1" in doctor
        assert PASSWORD not in doctor
        assert "another type" not in doctor
        queued = {m.name: m for m in Collector(site.settings).collect()}["penstock_queued_tasks"]
        assert [sample.value for sample in queued.samples] == [0]
    assert all(key.startswith(PREFIXES) for key in client.keys("*"))


def test_the_flower_of_the_users_app_sees_segments_and_reaches_no_worker(
    broker, installed, script, monkeypatch
):
    url, _ = broker
    site = installed(url)
    monkeypatch.setenv("SHOP_PREFIX", "")
    site.penstock("up")
    enable = ("-A", "penstock", "control", "enable_events")
    subprocess.run([sys.executable, "-m", "celery", *enable], env=site.environment, check=True)
    app = Celery("shop", broker=url, set_as_current=False)
    seen = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": seen.append})
        process = start(site, script, url, "")
        for _ in receiver.itercapture(limit=None, timeout=PATIENCE, wakeup=False):
            if any(each["type"] == "task-succeeded" for each in seen):
                break
    [received, *_] = [each for each in seen if each["type"] == "task-received"]
    assert received["name"] == "penstock.segment"
    assert "trial=" in received["kwargs"]
    assert app.control.ping(timeout=1.0) == []
    assert "best 0." in site.finish(process)


def test_a_user_of_one_prefix_runs_a_study(broker, installed, script):
    url, client = broker
    prefix = PREFIXES[0]
    rules = fitness.acl_rules(0, prefix).split()
    client.execute_command("ACL", "SETUSER", USER, "on", f">{WORD}", *rules)
    client.execute_command("ACL", "LOG", "RESET")
    theirs = re.sub("//.*@", f"//{USER}:{WORD}@", url)
    site = installed(f"{theirs}?global_keyprefix={prefix}")
    environment = {**site.environment, "SHOP_BROKER": url, "SHOP_PREFIX": prefix}
    process = site.python(script, cwd=script.parent, env=environment)
    assert "best 0." in site.finish(process)
    assert "pong" in pings(site)
    site.penstock("down")
    denied = client.execute_command("ACL", "LOG")
    words = [dict(zip(e[::2], e[1::2], strict=True)) if isinstance(e, list) else e for e in denied]
    assert [each for each in words if each["object"] not in UNASKED] == []
    assert [key for key in client.keys("*") if not key.startswith(prefix)] == []


def test_a_value_where_a_queue_belongs_is_removed_under_the_prefix(broker, installed, script):
    url, client = broker
    site = installed(f"{url}?global_keyprefix={PREFIXES[0]}")
    assert "best 0." in site.finish(start(site, script, url, PREFIXES[0]))
    [device] = client.hkeys("shop:penstock:devices")
    queue = f"{device}.s0"
    client.set(queue, "a neighbour's")
    client.set(f"{PREFIXES[0]}{queue}", "misplaced")
    until(lambda: not client.exists(f"{PREFIXES[0]}{queue}"), "its worker removes it")
    assert client.get(queue) == "a neighbour's"
    client.lpush(f"{PREFIXES[0]}{queue}", "no message")
    until(lambda: client.hgetall("shop:penstock:dropped"), "what is dropped is counted")
    until(lambda: client.llen(f"{PREFIXES[0]}{queue}") == 0, "it is dropped")
    assert "shop:penstock:dropped` resets the counts" in site.penstock("doctor")
