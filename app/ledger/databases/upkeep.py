"""Migrate a ledger to the tables of this version, and check a whole ledger."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, Engine, delete, event, func, insert, inspect, select, update
from sqlalchemy.schema import CreateColumn

from .base import (
    Database,
    Newest,
    asking,
    check_empty,
    check_not_newer,
    check_noted,
    installed,
    revision,
)
from .digests import fault, faults, seal, seal_all
from .row_digest import NONE
from .schema import HEAD
from .tables import EVENT, METADATA, REVISION, STUDY, WRITER


def begin_by(engine: Engine, words: str) -> Engine:
    """Make ``engine`` begin its transactions with the statement ``words``, and return the engine.

    The driver itself does not begin transactions, and would commit each statement.
    """

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(words)

    return engine


def migrate(database: Database, connection: Connection) -> None:
    """Migrate the ledger to the schema ``HEAD``, and record this version as the ledger's writer.

    Everything happens in one transaction. Raises LedgerDamaged if the ledger is damaged, and
    LedgerRefused if a newer version wrote it.
    """
    with connection.begin():
        if message := database.structure_fault(asking(connection)):
            raise database.damaged(message)
        at = revision(database, asking(connection))
        if at is None:
            check_empty(database, asking(connection))
            METADATA.create_all(connection, checkfirst=False)
            REVISION.create(connection)
            connection.execute(insert(REVISION).values(version_num=HEAD))
        elif at != HEAD:
            check_not_newer(database, asking(connection), at)
            _check_rows(database, connection)  # else damage would have a right digest from now on
            _extend(connection)
            seal_all(connection)
        row = {"version": installed(), "schema": HEAD}
        seal(WRITER, [row], NONE)
        rows = connection.execute(select(WRITER)).all()
        if [each._asdict() for each in rows] != [row]:
            if at == HEAD and (wrong := fault(WRITER, rows)):
                raise database.damaged(wrong)
            connection.execute(delete(WRITER))
            connection.execute(insert(WRITER), [row])


def _extend(connection: Connection) -> None:
    """Add the tables, columns and indexes that an older ledger lacks."""
    METADATA.create_all(connection)
    inspector = inspect(connection)
    for table in METADATA.tables.values():
        column_names = {column["name"] for column in inspector.get_columns(table.name)}
        for column in table.c:
            if column.name not in column_names:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {definition}")
        for index in table.indexes:
            index.create(connection, checkfirst=True)
    connection.execute(update(REVISION).values(version_num=HEAD))


def verify(database: Database, connection: Connection) -> Newest:
    """Check that the whole ledger is as it was written, and return its newest event.

    The check reads every row. Raises LedgerDamaged with the first fault.
    """
    newest = database.noted()  # read first: an event written meanwhile is newer
    with connection.begin():
        _check_rows(database, connection)
        check_noted(database, asking(connection), newest)
        query = select(EVENT.c.seq, EVENT.c.digest).order_by(EVENT.c.seq.desc()).limit(1)
        row = connection.execute(query).first()
    return Newest(0, NONE) if row is None else Newest(row.seq, row.digest)


def _check_rows(database: Database, connection: Connection) -> None:
    for message in faults(connection):
        raise database.damaged(message)


class Known(NamedTuple):
    """Two numbers of an intact ledger: the number of its newest event and the number of studies."""

    newest: int
    studies: int


def check_intact(database: Database) -> Known:
    """Check that a ledger is intact, without changing the ledger.

    In a ledger of an older version without digests, only the structure of the database is checked.
    Raises LedgerDamaged, LedgerRefused if a newer version wrote the ledger, or BackendError.
    """
    with database.translate_errors(), database.reader().connect() as connection:
        if message := database.structure_fault(asking(connection)):
            raise database.damaged(message)
        at = revision(database, asking(connection))
        connection.rollback()
        if at is None:
            raise database.damaged("it is empty")
        if at == HEAD:
            verify(database, connection)
        else:
            check_not_newer(database, asking(connection), at)
            _check_rows(database, connection)
        newest = connection.execute(select(func.max(EVENT.c.seq))).scalar() or 0
        studies = connection.execute(select(func.count(STUDY.c.id))).scalar() or 0
    return Known(newest, studies)
