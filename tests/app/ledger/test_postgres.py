"""The ledger on PostgreSQL: who may write, and what a server that is away or silent comes to.

What both databases have in common is in test_ledger, test_queries and test_migrations.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from itertools import groupby
from urllib.parse import quote

import psycopg
import pytest
from ledgers.ledger_batches import SPEC, epoch_batch, first_batch
from patience import PATIENCE, until
from penstock.app.host.settings import load
from penstock.app.ledger.databases.open import database_at
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.base.errors import BackendError
from servers.serving_scheduler import serving_scheduler

from testkit.postgres import PASSWORD, USER, server

SECRETS = (PASSWORD, quote(PASSWORD, safe=""))


@pytest.fixture(scope="module")
def own():
    """A server that may be killed."""
    with server() as found:
        yield found


def setting(ledger, name):
    return ledger._driver.execute(f"SHOW {name}").fetchone()[0]


def test_a_commit_is_synced_whatever_the_database_is_set_to(postgres):
    url = postgres.create("unsynced")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("ALTER DATABASE unsynced SET synchronous_commit = off")
    ledger = SqlLedger.open(url)
    assert setting(ledger, "synchronous_commit") == "on"
    ledger.close()


def test_a_batch_goes_out_in_one_piece(postgres_url, tmp_path):
    """By libpq's own trace: after all that is sent (F) come all answers (B), once."""
    ledger = SqlLedger.open(postgres_url)
    ledger.commit(first_batch(16))
    with (tmp_path / "trace").open("w") as file:
        ledger._driver.pgconn.trace(file.fileno())
        ledger.commit(epoch_batch(16, first_seq=2, epoch=1))
        ledger._driver.pgconn.untrace()
    ledger.close()
    lines = [line.split("\t")[1] for line in (tmp_path / "trace").read_text().splitlines()]
    assert lines.count("F") > 3 * 16
    assert "".join(who for who, _ in groupby(lines)) == "FB"


def test_a_second_writer_waits_and_takes_over(postgres_url, monkeypatch):
    first = SqlLedger.open(postgres_url)
    monkeypatch.setattr("penstock.app.ledger.databases.base.LOCK_TIMEOUT", 0.05)
    with pytest.raises(BackendError, match="is a second scheduler at work"):
        SqlLedger.open(postgres_url)
    monkeypatch.undo()
    threading.Timer(0.2, first.close).start()
    second = SqlLedger.open(postgres_url)
    second.commit(first_batch(1))
    second.close()


def test_a_store_that_cannot_be_marked_does_not_lock_its_scheduler_out(
    postgres_url, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("penstock.app.ledger.databases.base.LOCK_TIMEOUT", 0.2)
    caplog.set_level("INFO", logger="penstock.app.server.services.scheduler_process")
    (tmp_path / "disk").write_text("no folder")
    settings = load(
        home=tmp_path / "home", ledger=postgres_url, store=f"file://{tmp_path}/disk/store"
    )
    settings.ensure_home()
    with serving_scheduler(settings):
        until(lambda: "disk" in caplog.text)
        (tmp_path / "disk").unlink()
        until(lambda: "restored 0 events" in caplog.text)


def test_ledgers_in_two_schemas_of_one_database_do_not_wait_for_each_other(postgres_url, postgres):
    one = SqlLedger.open(postgres_url)
    two = SqlLedger.open(postgres.url())
    one.commit(first_batch(1))
    assert list(two.replay()) == []
    one.close()
    two.close()


def test_a_writer_whose_session_was_cut_writes_nothing_any_more(postgres_url):
    old = SqlLedger.open(postgres_url)
    old.commit(first_batch(2))
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'penstock scheduler'"
        )
    new = SqlLedger.open(postgres_url)
    new.commit(Batch(commands=[("c", "new")]))
    for _ in range(2):
        with pytest.raises(BackendError):
            old.commit(Batch(commands=[("c2", "old")]))
        with pytest.raises(BackendError):
            old.reply_to("c")
    old.close()
    assert new.reply_to("c2") is None
    new.commit(epoch_batch(2, first_seq=2, epoch=1))
    new.close()


def test_a_killed_server_keeps_what_was_committed_and_readers_go_on_by_themselves(own):
    url = own.create("killed")
    ledger, reader = SqlLedger.open(url), Reader(url)
    ledger.commit(first_batch(2))
    assert len(reader.trials(SPEC.id)) == 2
    own.kill()
    began = time.monotonic()
    for use in (reader.studies, lambda: ledger.commit(Batch(commands=[("c", "r")]))):
        with pytest.raises(
            BackendError, match=r"the ledger postgresql://.* cannot be used"
        ) as away:
            use()
        assert not any(secret in str(away.value) for secret in SECRETS)
    assert time.monotonic() - began < PATIENCE
    own.start()
    assert len(reader.trials(SPEC.id)) == 2
    with pytest.raises(BackendError):  # its lock is gone with its session
        ledger.commit(Batch(commands=[("c", "r")]))
    ledger.close()
    ledger = SqlLedger.open(url)
    assert ledger.reply_to("c") is None
    ledger.commit(epoch_batch(2, first_seq=2, epoch=1))
    ledger.close()


def test_a_stopped_server_is_waited_for_a_while_and_then_given_up(own, monkeypatch):
    monkeypatch.setattr("penstock.app.ledger.databases.postgres.CONNECT_TIMEOUT", 2)
    url = own.create("stopped")
    ledger, reader = SqlLedger.open(url), Reader(url)
    ledger.commit(first_batch(2))
    with own.paused():
        timer = threading.Timer(1.0, own.resume)
        timer.start()
        ledger.commit(epoch_batch(2, first_seq=2, epoch=1))
        timer.join()  # or it resumes what is paused next
    monkeypatch.setattr("penstock.app.ledger.databases.postgres.SILENCE_TIMEOUT", 0.5)
    with own.paused():
        began = time.monotonic()
        with pytest.raises(BackendError, match=r"no answer within 0\.5 s"):
            ledger.commit(epoch_batch(2, first_seq=4, epoch=2))
        with pytest.raises(BackendError, match="timeout"):
            database_at(url).check()
        assert time.monotonic() - began < PATIENCE
    monkeypatch.undo()
    # What was sent before it was given up may be written or not: whole, and before anyone else's.
    ledger.close()
    ledger = SqlLedger.open(url)
    events = [seq for seq, _ in ledger.replay()]
    assert events in ([1, 2, 3], [1, 2, 3, 4, 5])
    assert len(reader.epochs(SPEC.id)) == len(events) - 1
    ledger.close()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("password", "password authentication failed"),
        ("database", 'database "nowhere" does not exist'),
        ("host", "resolve|not known"),
        ("port", "refused"),
    ],
)
def test_what_does_not_lead_to_a_database_is_said_within_seconds(postgres, what, words):
    at = f"127.0.0.1:{postgres.port}"
    password = quote(PASSWORD, safe="")
    url = {
        "password": f"postgresql://{USER}:s3cret@{at}/postgres",
        "database": f"postgresql://{USER}:{password}@{at}/nowhere",
        "host": f"postgresql://{USER}:{password}@nowhere.invalid/postgres",
        "port": f"postgresql://{USER}:{password}@127.0.0.1:1/postgres",
    }[what]
    began = time.monotonic()
    with pytest.raises(BackendError, match=words) as refused:
        database_at(url).check()
    assert time.monotonic() - began < PATIENCE
    assert "s3cret" not in str(refused.value)


def test_a_schema_that_does_not_exist_is_refused_at_the_door(postgres):
    url = f"{postgres.url()}&options=-csearch_path%3Dnowhere"
    with pytest.raises(
        BackendError, match="no schema for tables: create the schema of its search_path"
    ):
        database_at(url).check()


def test_a_database_that_cannot_hold_every_text_is_refused(postgres):
    with psycopg.connect(postgres.url(), autocommit=True) as session:
        session.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(BackendError, match="LATIN1: create a database with UTF8"):
        SqlLedger.open(postgres.url("latin"))
    with pytest.raises(BackendError, match="LATIN1: create a database with UTF8"):
        database_at(postgres.url("latin")).check()


def test_a_role_that_may_not_make_tables_is_told_so(postgres):
    with psycopg.connect(postgres.url(), autocommit=True) as session:
        session.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    guest = postgres.url().replace(f"{USER}:{quote(PASSWORD, safe='')}@", "guest:guest@")
    with pytest.raises(BackendError, match="make it the owner of the database"):
        SqlLedger.open(guest)


def test_without_the_library_the_extra_is_named():
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from penstock import UsageError\n"
        "from penstock.app.ledger.reader import Reader\n"
        "try: Reader('postgresql://me:s3cret@host/db')\n"
        "except UsageError as error: print(error)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pip install 'penstock[postgres]'" in ran.stdout
