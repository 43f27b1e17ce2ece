"""A study on the broker of a user's Celery app, whose own messages stay where they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import pytest
from machines.network import PASSWORD, answering_broker
from patience import PATIENCE, until
from penstock.app.broker import fitness
from penstock.app.host.settings import load
from servers.installation import Installation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

APP = """
    import os

    from celery import Celery

    app = Celery("shop", broker=os.environ["SHOP_BROKER"])


    @app.task
    def order(number):
        raise AssertionError("an order of the shop ran in a worker of Penstock's")


    def objective(trial):
        return trial.suggest_float("x", 0, 1)


    if __name__ == "__main__":
        import penstock

        order.delay(1)
        study = penstock.create_study(sampler="random")
        study.optimize(objective, n_trials=3)
        order.delay(2)
        print("best", study.best_value)
"""
USER, WORD = "penstock", "s3cret"


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
def site(tmp_path):
    """An installation without a broker of its own choice."""
    site = Installation(tmp_path / "home", devices="cpu:1x1")
    yield site
    site.close()


def finish(site, script, **variables):
    process = site.python(
        script, cwd=script.parent, env={**site.environment, "CELERY_BROKER_URL": "", **variables}
    )
    return site.finish(process)


def on_broker(site, url):
    """The same installation with this broker, which can be asked and closed."""
    settings = site.settings.model_dump(exclude_none=True) | {"broker": url}
    site.settings = load(**settings)
    return site


def test_a_process_of_the_app_tunes_on_its_broker(broker, site, script):
    url, client = broker
    variables = {"PENSTOCK_BROKER": "celery", "PENSTOCK_CELERY_APP": "shop"}
    try:
        assert "best 0." in finish(site, script, SHOP_BROKER=url, **variables)
        assert client.llen("celery") == 2
        assert client.exists("penstock:installation")
        doctor = site.start(
            *("doctor",),
            cwd=script.parent,
            env={**site.environment, "SHOP_BROKER": url, **variables},
        )
        said = site.finish(doctor)
        assert "answers; it is named by the Celery app shop" in said
        assert "it keeps nothing on its disk" in said
        assert PASSWORD not in said
        # Each hears its own operators alone.
        for app, heard in (("shop", False), ("penstock", True)):
            ping = subprocess.run(
                [sys.executable, "-m", "celery", "-A", app, "inspect", "ping", "-t", "5"],
                cwd=script.parent,
                env={**os.environ, **on_broker(site, url).environment, "SHOP_BROKER": url},
                capture_output=True,
                text=True,
                check=False,
            )
            assert ("pong" in ping.stdout) is heard, ping.stdout + ping.stderr
    finally:
        on_broker(site, url)


def test_a_user_with_the_documented_rules_runs_a_study(broker, site, script):
    url, client = broker
    rules = fitness.acl_rules().split()
    client.execute_command("ACL", "SETUSER", USER, "on", f">{WORD}", *rules)
    client.execute_command("ACL", "LOG", "RESET")
    theirs = re.sub("//.*@", f"//{USER}:{WORD}@", url)
    try:
        variables = {"PENSTOCK_BROKER": theirs, "SHOP_BROKER": url}
        assert "best 0." in finish(site, script, **variables)
    finally:
        on_broker(site, theirs)
    ping = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "penstock", "inspect", "ping", "-t", "5"],
        env=site.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pong" in ping.stdout, ping.stdout + ping.stderr
    site.penstock("down")
    denied = client.execute_command("ACL", "LOG")
    words = [dict(zip(e[::2], e[1::2], strict=True)) if isinstance(e, list) else e for e in denied]
    # redis-py introduces itself, and does without where it may not.
    assert [each for each in words if each["object"] not in ("client|setinfo", "config|get")] == []


def test_a_variable_of_celerys_alone_writes_nothing_to_its_broker(broker, site, script):
    url, client = broker
    variables = {"CELERY_BROKER_URL": url, "SHOP_BROKER": url}
    environment = {**site.environment, **variables}
    process = site.start("run", script, cwd=script.parent, env=environment)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert err.count("CELERY_BROKER_URL (redis://***@") == 1
    assert PASSWORD not in out + err
    assert client.keys("penstock:*") == []
    again = site.start("up", cwd=script.parent, env=environment)
    _, err = again.communicate(timeout=PATIENCE)
    assert "CELERY_BROKER_URL" not in err
    until(lambda: client.llen("celery") == 2, "the shop's orders")
