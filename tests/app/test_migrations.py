"""Migrations: every older ledger reaches the newest schema, which is the one that the code uses."""

from __future__ import annotations

import gzip
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from ledger_batches import as_newer, first_batch
from penstock.app.ledger.databases import base, upkeep
from penstock.app.ledger.databases.digests import seal
from penstock.app.ledger.databases.migrations import run, versions
from penstock.app.ledger.databases.open import database_at
from penstock.app.ledger.databases.row_digest import NONE
from penstock.app.ledger.databases.schema import HEAD
from penstock.app.ledger.databases.tables import METADATA, WRITER
from penstock.app.ledger.ledger import SqlLedger
from penstock.profiling.base.errors import BackendError, LedgerDamaged
from sqlalchemy import create_engine, insert, inspect

RECORDED = Path(__file__).parent.parent / "recorded"


@pytest.fixture
def connection(url):
    with database_at(url).writer().connect() as opened:
        yield opened


def scripts(connection):
    return ScriptDirectory.from_config(run.config(connection))


def test_an_empty_file_is_brought_to_the_head(url, connection):
    upkeep.migrate(database_at(url), connection)
    with connection.begin():
        assert base.revision(database_at(url), base.asking(connection)) == HEAD


STEPS = sorted(path.name[1:5] for path in Path(versions.__file__).parent.glob("r*.py"))


@pytest.mark.parametrize("step", STEPS)
def test_every_step_on_the_way_is_brought_to_the_head(url, connection, step):
    with connection.begin():
        run.upgrade(connection, step)
        if inspect(connection).has_table(WRITER.name):  # since then a ledger says who wrote it
            row = {"version": "0.1", "schema": step}
            seal(WRITER, [row], NONE)
            connection.execute(insert(WRITER), [row])
    upkeep.migrate(database_at(url), connection)
    with connection.begin():
        assert base.revision(database_at(url), base.asking(connection)) == HEAD


DAMAGE = {
    "event": "UPDATE event SET body = replace(body, '0', '1') WHERE seq = 7",
    "epoch": "UPDATE epoch SET value = value + 1 WHERE epoch = 1",
    "trial": "UPDATE trial SET params = '{}' WHERE number = 0",
    "device": "UPDATE device SET slots = slots + 1",
    "missing": "DELETE FROM event WHERE seq = 7",
}


def of_schema(step, tmp_path):
    """A ledger that Penstock has written when that was its schema."""
    path = tmp_path / "ledger.db"
    if step == "0009":
        path.write_bytes(gzip.decompress((RECORDED / "ledgers" / "epochs.db.gz").read_bytes()))
    else:
        with tarfile.open(RECORDED / "homes" / "last.tar.gz") as archive:
            archive.extract("home/ledger.db", tmp_path, filter="data")
        path = tmp_path / "home" / "ledger.db"
    with sqlite3.connect(path) as opened:
        assert opened.execute("SELECT version_num FROM alembic_version").fetchone() == (step,)
    return path


@pytest.mark.parametrize("step", ["0009", "0013"])
@pytest.mark.parametrize("what", DAMAGE)
def test_damage_in_an_older_ledger_is_found_before_it_gets_new_digests(step, what, tmp_path):
    path = of_schema(step, tmp_path)
    url = f"sqlite:///{path}"
    intact = upkeep.check_intact(database_at(url))
    assert intact.newest > 7
    with sqlite3.connect(path) as opened:
        assert opened.execute(DAMAGE[what]).rowcount
    opened.close()
    for _ in range(2):
        with pytest.raises(LedgerDamaged, match=r"event 7|event 8|row .* of table"):
            SqlLedger.open(url)
    with pytest.raises(LedgerDamaged):
        upkeep.check_intact(database_at(url))


@pytest.mark.parametrize("step", ["0009", "0013"])
def test_an_older_ledger_without_damage_is_read(step, tmp_path):
    url = f"sqlite:///{of_schema(step, tmp_path)}"
    SqlLedger.open(url).close()
    assert upkeep.check_intact(database_at(url)).newest > 7


def test_the_migrated_schema_is_the_one_that_the_code_uses(url, connection):
    upkeep.migrate(database_at(url), connection)
    with connection.begin():
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_the_names_of_keys_are_the_same_too(sqlite_url, tmp_path):
    SqlLedger.open(sqlite_url).close()
    fresh = create_engine(f"sqlite:///{tmp_path}/fresh.db")
    METADATA.create_all(fresh)
    query = "SELECT type, name, tbl_name FROM sqlite_master WHERE name NOT LIKE '%alembic%'"
    with database_at(sqlite_url).reader().connect() as connection, fresh.connect() as made:
        migrated = connection.exec_driver_sql(query).all()
        assert sorted(migrated) == sorted(made.exec_driver_sql(query).all())


def test_the_named_head_is_the_last_step(connection):
    assert scripts(connection).get_current_head() == HEAD


def test_a_ledger_of_a_newer_version_is_refused_and_left_as_it_is(url):
    ledger = SqlLedger.open(url)
    as_newer(ledger)
    ledger.close()
    wanted = rf"written by Penstock 99.0.0 \(schema 9999\).* \(reads up to {int(HEAD)}\): upgrade"
    with pytest.raises(BackendError, match=wanted):
        SqlLedger.open(url)
    with database_at(url).writer().connect() as connection, connection.begin():
        assert base.revision(database_at(url), base.asking(connection)) == "9999"


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(url):
    with database_at(url).writer().connect() as connection, connection.begin():
        connection.exec_driver_sql("CREATE TABLE snapshot (mine INTEGER)")
    with pytest.raises(BackendError, match="already exists"):
        SqlLedger.open(url)
    with database_at(url).writer().connect() as connection, connection.begin():
        assert inspect(connection).get_table_names() == ["snapshot"]


def test_a_ledger_at_the_head_is_opened_without_alembic(url):
    SqlLedger.open(url).close()
    program = (
        "import sys; from penstock.app.ledger.ledger import SqlLedger;"
        f"SqlLedger.open({url!r}).close(); print('alembic' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "False"


def test_the_working_folder_and_its_settings_do_not_matter(url, tmp_path, monkeypatch):
    (tmp_path / "alembic.ini").write_text("[alembic]\nscript_location = nowhere\n")
    monkeypatch.chdir(tmp_path)
    ledger = SqlLedger.open(url)
    ledger.commit(first_batch(1))
    ledger.close()
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"alembic.ini"} | (
        {"ledger.db", "ledger.db-mark"} if url.startswith("sqlite") else set()
    )
