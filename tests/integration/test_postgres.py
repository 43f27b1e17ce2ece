"""A study whose ledger is on PostgreSQL: as on SQLite, also when the database goes away."""

from __future__ import annotations

from urllib.parse import quote

import psutil
import pytest
from machines.system import missing
from patience import PATIENCE
from penstock.app.host import locks
from servers.installation import Installation

from testkit.faults import campaign as chaos
from testkit.faults.faults import DATABASE_KINDS
from testkit.postgres import PASSWORD, find_binaries, server

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCRIPT = """
import time
import penstock

def objective(trial):
    x = trial.suggest_float("x", -1, 1)
    for step in range(20):
        time.sleep(0.05)
        trial.report(x * x + step, step)
    return x * x

if __name__ == "__main__":
    penstock.create_study(study_name="away", sampler="random").optimize(objective, n_trials=8)
"""


def findings(site):
    from penstock.extensions.doctor.doctor import diagnose

    return {finding.name: finding for finding in diagnose(site.settings)}


@pytest.fixture(autouse=True)
def _server_is_installed():
    if find_binaries() is None:
        missing("no PostgreSQL server is installed (Debian: postgresql)")


@pytest.mark.extension("sharing")
def test_faults_of_the_database_change_nothing_of_the_table_that_sqlite_gives():
    others = list(locks._started)  # services of other tests that run in this process
    figures = chaos.campaign(4, seed=1, postgres=True, only=DATABASE_KINDS)
    for process in locks._started:
        if process not in others:
            process.wait(PATIENCE)
    assert figures["faults_by_kind"] == dict.fromkeys(DATABASE_KINDS, 2)
    assert figures["epochs"] > 4
    assert {name: figures[name] for name in ("lost", "doubled", "wrong")} == {
        "lost": 0, "doubled": 0, "wrong": 0
    }  # fmt: skip


@pytest.mark.extension("doctor")
def test_a_database_that_is_away_is_named_and_the_study_goes_on_by_itself(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    secret = quote(PASSWORD, safe="")
    with server() as database:
        url = database.create("ledger")
        refused = Installation(tmp_path / "refused", ledger=url.replace(secret, "wr0ng"))
        site = Installation(tmp_path / "home", ledger=url)
        elsewhere = Installation(tmp_path / "elsewhere", ledger=url)
        try:
            said = [refused.penstock("up", status=3)]
            assert "password authentication failed" in said[0]
            assert not (tmp_path / "refused" / "run" / "up.json").exists()

            site.penstock("submit", script)
            site.until(lambda: site.reader.newest() > 20)
            database.kill()
            said += [site.penstock(*words, status=3) for words in (("ls",), ("status", "away"))]
            assert all("cannot be used" in words for words in said[1:])
            assert all("Connection refused" in words for words in said[1:])
            # That is so once there was an epoch that could not be written.
            site.until(lambda: "cannot serve: the ledger" in findings(site)["scheduler"].what)
            found = findings(site)
            said.append(found["ledger"].what)
            assert found["ledger"].grade == "fail"
            assert "Connection refused" in said[-1]
            database.start()
            assert site.wait("away").status == "complete"
            trials = site.reader.trials(site.reader.study("away").id)
            assert [(trial.state, trial.epoch) for trial in trials] == [("completed", 20)] * 8

            said += [elsewhere.penstock(*words) for words in (("ls",), ("story", "away/3"))]
            assert "away" in said[-2]
            services = [locks.pid_of(site.settings.run, name) for name in ("scheduler", "agent")]
            shown = [" ".join(psutil.Process(pid).cmdline()) for pid in services]
            shown += [log.read_text() for log in site.settings.logs.iterdir()]
            shown.append((site.settings.run / "up.json").read_text())
            assert "rebuilding the engine from the ledger" in "".join(shown)
            for words in said + shown:
                assert PASSWORD not in words
                assert secret not in words
                assert "wr0ng" not in words
        finally:
            site.close()
