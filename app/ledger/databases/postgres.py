"""The ledger in a PostgreSQL database.

The writer is one session. It holds an advisory lock for as long as it lives, and writes over no
other connection: who lost the session has lost the lock and can write nothing, and who gets the
lock knows that all that the last one sent is committed or never will be. A session whose client
has vanished is ended by the server within half a minute, and its lock with it.

A batch goes out in one piece (libpq's pipeline), from BEGIN to COMMIT, and costs one round trip.
``synchronous_commit`` is on whatever the server's own setting is, so that it outlives a power cut.
Readers' sessions are read-only.

No wait is for ever: neither for a connection, nor for a lock, nor for a statement, nor for a server
that is stopped and says nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, NullPool, QueuePool, create_engine

from ....profiling.base.errors import UsageError
from ....profiling.base.extras import lacking
from ....profiling.base.urls import hide_password
from ...common.timeouts import within
from . import base
from .base import ALLOWED, BUSY, Database, begin_by

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.waiting import Ready
except ImportError as absent:
    raise UsageError(lacking("psycopg", "a ledger on PostgreSQL"), "ledger") from absent

if TYPE_CHECKING:
    from psycopg.abc import PQGen

#: Seconds that a connection may take, to each address and in all (name lookup included).
CONNECT_LIMIT, CONNECT_LIMIT_IN_ALL = 4, 10.0
#: Seconds that one statement may take, and that a server may say nothing while one is under way.
STATEMENT_LIMIT, SILENCE_LIMIT = 30, 40.0
#: The advisory lock of a ledger: this, and a number of the schema that its tables are in.
LOCK = 0x50454E53

_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[^@/?#\s:\[\],]*)(?::\d{1,5})?"
#: A password with a character of its own meaning would be taken for a host, and shown in errors.
URL = re.compile(
    rf"postgresql://(?:[^@/?#\s:]*(?::[^@/?#\s]*)?@)?{_HOST}(?:,{_HOST})*/[^@/?#\s]+(?:\?[^@#\s]*)?"
)

_MEANINGS = {
    "55P03": BUSY,
    "57014": f"a statement took longer than {STATEMENT_LIMIT} s",
    "53100": "its disk is full: free some space",
    "25006": "it is read-only: is the server a standby?",
    "42501": "its role may not do that: make it the owner of the database",
}


class Session(psycopg.Connection[Any]):
    """A connection that gives a server up which has said nothing for ``SILENCE_LIMIT`` seconds."""

    def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._heard(gen), *args, **kwargs)

    def _heard(self, gen: PQGen[Any]) -> Generator[Any, Any, Any]:
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready != Ready.NONE:
                    heard = time.monotonic()
                elif time.monotonic() - heard > SILENCE_LIMIT:
                    # Closed: what is done next with it fails, and does not wait as long again.
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {SILENCE_LIMIT:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


class PostgresDatabase(Database):
    """The database of a ledger's URL, which is libpq's own form of one."""

    errors = (psycopg.Error, TimeoutError)
    # DataError: a number that the column cannot hold.
    contradictions = (psycopg.IntegrityError, psycopg.DataError)
    restoring = "Nothing of it is shown or changed. Restore the database from a dump (pg_restore)"

    def __init__(self, url: str) -> None:
        self.shown = hide_password(url)
        try:
            known = URL.fullmatch(url) is not None
            self._given = conninfo_to_dict(url) if known else {}
        except psycopg.Error:
            known = False
        if not known:
            # Nothing of it is shown, nor the library's own words: which part would be the password
            # is what could not be read.
            allowed = f"{ALLOWED}; in user and password @ / : ? # % are percent-encoded (%40)"
            raise UsageError.refuse("ledger", "postgresql://…", allowed) from None

    def check(self) -> None:
        with self.answering(), self._connect("door", read_only=True) as session:
            self._check(session)

    def is_absent(self) -> bool:
        return False

    def writer(self) -> Engine:
        begun: list[Session] = []

        def connect() -> Session:
            if begun:  # SQLAlchemy would make another one for a connection that is lost
                raise psycopg.OperationalError("its session is lost, and the lock with it")
            session = self._connect("scheduler", autocommit=True)
            begun.append(session)
            try:
                self._take(session)
            except BaseException:
                session.close()
                raise
            return session

        # Nothing is reset when it is closed: it may be lost already.
        engine = _engine(creator=connect, poolclass=NullPool, pool_reset_on_return=None)
        return begin_by(engine, "BEGIN")

    def reader(self) -> Engine:
        # One connection is kept, since a new one costs more than a query; others come and go.
        return _engine(
            creator=lambda: self._connect("reader", read_only=True),
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=-1,
            pool_pre_ping=True,
        )

    @contextmanager
    def transaction(self, driver: Session) -> Iterator[psycopg.Cursor[Any]]:
        try:
            with driver.pipeline(), driver.cursor() as cursor:
                cursor.execute("BEGIN")
                yield cursor
                cursor.execute("COMMIT")
        except BaseException:
            # A connection that is lost or silent has nothing to take back.
            if not driver.closed:
                driver.rollback()
            raise

    def meaning(self, error: BaseException | None) -> str:
        words = " ".join(str(error).split())
        state = getattr(error, "sqlstate", None)
        if state is None:
            return words
        return f"{_MEANINGS.get(state, words)} ({state})"

    def _take(self, session: Session) -> None:
        """Be the writer, or raise the driver's error for a lock that another session holds."""
        schema = self._check(session)
        session.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, schema))

    def _check(self, session: Session) -> str:
        """The schema of a database that can hold a ledger. Raises ``BackendError`` for another."""
        found = session.execute("SELECT current_setting('server_encoding'), current_schema()")
        [(encoding, schema)] = found.fetchall()
        if encoding != "UTF8":
            raise self.unusable(f"its encoding is {encoding}: make a database with UTF8")
        if schema is None:
            raise self.unusable("it has no schema for tables: make the one of its search_path")
        return str(schema)

    def _connect(self, who: str, *, read_only: bool = False, autocommit: bool = False) -> Session:
        """A session for ``who``. What the URL says of the connection itself comes first."""
        settings = {
            "statement_timeout": STATEMENT_LIMIT * 1000,
            "lock_timeout": int(base.PATIENCE * 1000),
            "idle_in_transaction_session_timeout": STATEMENT_LIMIT * 1000,
            "synchronous_commit": "on",
            "default_transaction_read_only": "on" if read_only else "off",
            # The server's side: so it notices that a client's machine is gone.
            "tcp_keepalives_idle": 10,
            "tcp_keepalives_interval": 5,
            "tcp_keepalives_count": 3,
        }
        options = [str(self._given.get("options", ""))]
        options += [f"-c {name}={value}" for name, value in settings.items()]
        plain: dict[str, Any] = {
            "application_name": f"penstock {who}",
            "connect_timeout": CONNECT_LIMIT,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 25_000,
        }
        ours = {"client_encoding": "UTF8", "options": " ".join(options).strip()}
        given = plain | self._given | ours
        return within(
            CONNECT_LIMIT_IN_ALL,
            "ledger-connect",
            lambda: Session.connect(autocommit=autocommit, **given),
        )


def _engine(**options: Any) -> Engine:
    # hstore is looked for at each first connection, and nothing here is of that type.
    return create_engine("postgresql+psycopg://", use_native_hstore=False, **options)
