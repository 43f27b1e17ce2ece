"""Migrations: every older ledger reaches the newest schema, which is the one that the code uses."""

from __future__ import annotations

import gzip
import sqlite3
import tarfile
from pathlib import Path

import pytest
from ledgers.ledger_batches import as_newer
from penstock.app.ledger.databases import base, upkeep
from penstock.app.ledger.databases.open import database_at
from penstock.app.ledger.databases.schema import HEAD
from penstock.app.ledger.databases.tables import METADATA, REVISION
from penstock.app.ledger.ledger import SqlLedger
from penstock.base.errors import BackendError, LedgerDamaged
from sqlalchemy import insert, inspect

RECORDED = Path(__file__).parents[2] / "recorded"


@pytest.fixture
def connection(url):
    with database_at(url).writer().connect() as opened:
        yield opened


def test_an_empty_file_is_brought_to_the_head(url, connection):
    upkeep.migrate(database_at(url), connection)
    with connection.begin():
        assert base.revision(database_at(url), base.asking(connection)) == HEAD


#: The columns that the first schema had, without those that were added since.
FIRST = {
    "event": "seq study trial kind at body",
    "study": "id name status created_at finished_at message spec",
    "trial": (
        "id study number state params epoch target value device slot created_at finished_at"
        " failure_kind failure_message failure_traceback"
    ),
    "epoch": "id trial epoch value metrics state_hash signature seconds device slot fence at",
    "durable": "trial epoch state_hash uri at",
    "device": "name node kind cores memory slots uuid model incarnation state at reason",
    "command": "id reply",
    "snapshot": "seq body",
}


def create_first(connection):
    """Create the first schema, from what the present one has of it."""
    METADATA.create_all(connection, [METADATA.tables[name] for name in FIRST])
    connection.exec_driver_sql("DROP INDEX ix_event_imported")
    for name, kept in FIRST.items():
        for column in set(METADATA.tables[name].c.keys()) - set(kept.split()):
            connection.exec_driver_sql(f"ALTER TABLE {name} DROP COLUMN {column}")
    REVISION.create(connection)
    connection.execute(insert(REVISION).values(version_num="0001"))


def schema_of(connection):
    """Return the columns, keys and indexes of each table, without their order."""
    found = inspect(connection)
    return {
        name: (
            {
                each["name"]: (str(each["type"]), each["nullable"], each["default"])
                for each in found.get_columns(name)
            },
            found.get_pk_constraint(name)["constrained_columns"],
            {tuple(each["constrained_columns"]) for each in found.get_foreign_keys(name)},
            {tuple(each["column_names"]) for each in found.get_unique_constraints(name)},
            {each["name"]: each["column_names"] for each in found.get_indexes(name)},
        )
        for name in METADATA.tables
    }


def test_the_first_schema_is_brought_to_the_one_that_the_code_uses(url, connection):
    with connection.begin():
        create_first(connection)
    upkeep.migrate(database_at(url), connection)
    with connection.begin():
        assert base.revision(database_at(url), base.asking(connection)) == HEAD
        extended = schema_of(connection)
        METADATA.drop_all(connection)
        METADATA.create_all(connection)
        assert schema_of(connection) == extended


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
