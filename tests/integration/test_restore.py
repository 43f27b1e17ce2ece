"""An older ledger is put back while workers and broker go on with what is newer."""

from __future__ import annotations

import shutil
import signal
from contextlib import closing

import pytest
from patience import PATIENCE
from penstock import Float, FullBudget, create_study
from penstock.app.broker import connection, presence, server
from penstock.app.host.settings import load
from servers.installation import Installation, serving, variables_of, working
from user_code.users_trainables import Paced

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def table(site, study):
    rows = site.reader.epochs(study.id)
    found = {(row.trial.rpartition("-")[2], row.epoch): (row.state_hash, row.value) for row in rows}
    assert len(found) == len(rows), "no epoch twice"
    return found


def epochs(site, study):
    return len(site.reader.epochs(study.id))


@pytest.fixture
def parts(tmp_path):
    """A broker and a worker that outlive the scheduler, as an operator runs them."""
    own = load(home=tmp_path / "broker")
    own.ensure_home()
    server.start(own)
    site = Installation(tmp_path / "site", broker=server.broker_url(own))
    node = Installation(tmp_path / "node", broker=server.broker_url(own))
    try:
        with working(node):
            yield site
    finally:
        server.stop(own)


def test_a_study_goes_on_from_an_older_ledger_as_if_the_newer_had_never_been(parts, tmp_path):
    site, go = parts, tmp_path / "go"
    space = {"lr": Float(1e-3, 1e-1, log=True), "pace": [0.2], "until": [str(go)]}
    kind = {"metric": "loss", "sampler": "random", "strategy": FullBudget(15), "seed": 5}
    scheduler = site.start("scheduler")
    try:
        site.until(lambda: serving(site), "the worker joins")
        with variables_of(site):
            study = create_study(study_name="restored", **kind)
            study.submit(Paced, space, 3)
        site.until(lambda: epochs(site, study) > 2, "some epochs")
        backup = tmp_path / "backup.db"
        said = site.penstock("backup", backup)
        newest = said.split(" events")[0].split()[-1]
        kept = epochs(site, study)
        site.until(lambda: epochs(site, study) > kept + 3, "more epochs")
        scheduler.kill()
        scheduler.communicate()
        fences = max(row.fence for row in site.reader.epochs(study.id))

        # What is written into a damaged ledger would be lost with it: so nothing is.
        file = site.settings.home / "ledger.db"
        shutil.copyfile(file, tmp_path / "before.db")
        for name in ("ledger.db", "ledger.db-wal"):
            damaged = site.settings.home / name
            if damaged.exists():
                damaged.write_bytes(damaged.read_bytes().replace(b'"loss"', b'"lass"'))
        scheduler = site.start("scheduler")
        with closing(connection.connect(site.settings.broker)) as client:
            site.until(lambda: presence.trouble(client, ""), "the scheduler refuses it")
            client.delete(presence.TROUBLE)  # as it is some seconds after it was told
            words = site.until(lambda: presence.trouble(client, ""), "it says so again")
        assert f"the ledger {file} is damaged: " in words
        assert "penstock restore" in words
        scheduler.send_signal(signal.SIGTERM)
        scheduler.communicate(timeout=PATIENCE)

        said = site.penstock("restore", backup)
        assert f"{newest} events" in said
        scheduler = site.start("scheduler")
        go.touch()
        assert site.wait(study.id).status == "complete"
        fresh = [row.fence for row in site.reader.epochs(study.id) if row.fence > fences]
        assert fresh and min(fresh) > 10**12, "no fence of the forgotten future was given again"
        with variables_of(site):
            undisturbed = create_study(study_name="undisturbed", **kind)
            undisturbed.submit(Paced, space, 3)
        assert site.wait(undisturbed.id).status == "complete"
        assert table(site, study) == table(site, undisturbed)
    finally:
        scheduler.send_signal(signal.SIGTERM)
        _, log = scheduler.communicate(timeout=PATIENCE)
    assert "a bug of Penstock" not in log
