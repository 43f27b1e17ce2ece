"""A broker stays with the installation that had it: its studies are in that one's ledger."""

from __future__ import annotations

import shutil
import textwrap

import pytest
from machines.network import PASSWORD, tcp_broker
from penstock.app.broker import connection, presence
from servers.installation import Installation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STUDY = """
    import penstock

    def objective(trial):
        return trial.suggest_float("x", 0, 1)

    if __name__ == "__main__":
        study = penstock.create_study(sampler="random")
        study.optimize(objective, n_trials=2)
        print(study.best_value)
"""


@pytest.fixture
def sites(tmp_path):
    """Two state folders with one broker."""
    with tcp_broker("127.0.0.1") as url:
        found = [
            Installation(tmp_path / name, broker=url, devices="cpu:1x1", node=name) for name in "ab"
        ]
        yield found
        for site in found:
            site.close()


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "plain.py"
    path.write_text(textwrap.dedent(STUDY))
    return path


def up(site):
    """``penstock up``, and its scheduler serves."""
    site.penstock("up")
    with connection.connect(site.settings.broker) as client:
        site.until(lambda: presence.holder(client, site.settings.broker), "a scheduler")


def test_nobody_takes_a_broker_over_whose_scheduler_is_down(sites, script):
    first, second = sites
    up(first)
    study = first.penstock("submit", script).split()[-1]
    first.wait(study)
    first.penstock("down")
    owner = str(first.settings.home)
    process = second.python(script)
    said = second.finish(process, status=1)
    assert f"that has served redis://***@{second.settings.broker.split('@')[1]}" in said
    assert owner in said
    assert f"which is not running: {owner}" in second.penstock("up", status=3)
    assert owner in second.penstock("ls", status=3)
    waiting = second.start("scheduler")  # as an operator starts it
    try:
        log = second.settings.run / "scheduler.lock"
        second.until(log.exists, "a scheduler that waits")
        up(first)
        assert [row.id for row in first.reader.studies()] == [study]
        said = second.penstock("up", status=3)
        assert f"is served by another scheduler: {owner}" in said
        assert "penstock worker" in said
        assert PASSWORD not in said
    finally:
        waiting.terminate()
        _, said = waiting.communicate()
    assert owner in said
    assert not (second.settings.home / "ledger.db").exists()
    assert not (second.settings.run / "up.json").exists()


def test_a_copy_of_the_key_is_the_same_installation(sites, script):
    first, second = sites
    up(first)
    study = first.penstock("submit", script).split()[-1]
    first.wait(study)
    first.penstock("down")
    second.settings.ensure_home()
    for name in ("key", "ledger.db"):
        shutil.copyfile(first.settings.home / name, second.settings.home / name)
    up(second)
    assert second.reader.study(study).status == "complete"
    assert "is served by another scheduler" in first.penstock("up", status=3)


@pytest.mark.extension("doctor")
def test_what_is_submitted_from_elsewhere_is_accepted_whatever_the_script_reads(sites, script):
    first, second = sites
    up(first)
    where = f"keeps it in {first.settings.home} on "
    for _ in range(2):
        said = second.penstock("submit", script)
        assert where in said
        assert "penstock watch" not in said
        assert where in second.penstock("ls", status=3)
    assert where in second.penstock("doctor")
    assert not (second.settings.home / "ledger.db").exists()
    assert len(first.reader.studies()) == 2


def test_devices_of_a_second_machine_are_served_to_the_first_ones_scheduler(sites, script):
    first, second = sites
    up(first)
    script.write_text(script.read_text().replace("n_trials=2", "n_trials=2, devices='cpu:1x1'"))
    for _ in range(2):
        second.penstock("submit", script)
    names = {status.name for status in _running(second)}
    assert names == {"agent"}
    assert not (second.settings.home / "ledger.db").exists()


def _running(site):
    from penstock.app.server.services.services import statuses

    return [status for status in statuses(site.settings) if status.pid is not None]
