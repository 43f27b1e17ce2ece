"""The ledger in a PostgreSQL database.

The writer is a single session. The session holds an advisory lock as long as it lives, and the
writer writes over no other connection. A writer that loses its session loses the lock, and can
write nothing more. When a process gets the lock, everything that the last writer sent is either
committed or never will be. When a client vanishes, the server ends the client's session within half
a minute, and so releases the lock.

A batch is sent as a whole (by libpq's pipeline), from BEGIN to COMMIT, and costs one round trip.
``synchronous_commit`` is on, whatever the setting of the server. So a commit survives a power cut.
The sessions of readers are read-only.

Every wait has a time limit: for a connection, for a lock, for a statement, and for a server that is
stopped and does not answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, NullPool, QueuePool, create_engine

from ....base.errors import UsageError
from ....base.extras import missing_extra
from ....base.urls import hide_password
from ...common.timeouts import within
from . import base
from .base import ALLOWED, BUSY, Ask, Database, value
from .upkeep import begin_by

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.waiting import Ready
except ImportError as absent:
    raise UsageError(missing_extra("psycopg", "a ledger on PostgreSQL"), "ledger") from absent

if TYPE_CHECKING:
    from psycopg.abc import PQGen

#: ``CONNECT_TIMEOUT`` is the number of seconds that connecting to one address may take.
#: ``TOTAL_CONNECT_TIMEOUT`` is the number of seconds that connecting may take in all, including the
#: lookup of names.
CONNECT_TIMEOUT, TOTAL_CONNECT_TIMEOUT = 4, 10.0
#: ``STATEMENT_TIMEOUT`` is the number of seconds that a statement may take. ``SILENCE_TIMEOUT`` is
#: the number of seconds for which a server may be silent during a statement.
STATEMENT_TIMEOUT, SILENCE_TIMEOUT = 30, 40.0
#: The first half of the key of a ledger's advisory lock. The second half identifies the schema that
#: the tables are in.
LOCK = 0x50454E53

_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[^@/?#\s:\[\],]*)(?::\d{1,5})?"
#: The form of a URL. A password with an unescaped special character does not match, since it would
#: be read as a host and shown in errors.
URL = re.compile(
    rf"postgresql://(?:[^@/?#\s:]*(?::[^@/?#\s]*)?@)?{_HOST}(?:,{_HOST})*/[^@/?#\s]+(?:\?[^@#\s]*)?"
)

_EXPLANATIONS = {
    "55P03": BUSY,
    "57014": f"a statement took longer than {STATEMENT_TIMEOUT} s",
    "53100": "its disk is full: free some space",
    "25006": "it is read-only: is the server a standby?",
    "42501": "its role may not do that: make it the owner of the database",
}


class PgSession(psycopg.Connection[Any]):
    """A connection that is given up if the server is silent for ``SILENCE_TIMEOUT`` seconds."""

    def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._limit_silence(gen), *args, **kwargs)

    def _limit_silence(self, gen: PQGen[Any]) -> Generator[Any, Any, Any]:
        last_answer = time.monotonic()
        try:
            awaited = next(gen)
            while True:
                ready = yield awaited
                if ready != Ready.NONE:
                    last_answer = time.monotonic()
                elif time.monotonic() - last_answer > SILENCE_TIMEOUT:
                    # Closed, so that its next use fails at once instead of waiting again.
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {SILENCE_TIMEOUT:g} s")
                awaited = gen.send(ready)
        except StopIteration as end:
            return end.value


class PostgresDatabase(Database):
    """The PostgreSQL database at a ledger's URL. The URL has the form of libpq's URLs."""

    errors = (psycopg.Error, TimeoutError)
    # DataError: a number that the column cannot hold.
    contradictions = (psycopg.IntegrityError, psycopg.DataError)
    restoring = "Nothing of it is shown or changed. Restore the database from a dump (pg_restore)"

    def __init__(self, url: str) -> None:
        self.shown = hide_password(url)
        try:
            is_url = URL.fullmatch(url) is not None
            self._parameters = conninfo_to_dict(url) if is_url else {}
        except psycopg.Error:
            is_url = False
        if not is_url:
            # Neither the URL nor the library's message is shown: either may contain the password,
            # which cannot be located in a URL that cannot be parsed.
            allowed = f"{ALLOWED}; in user and password @ / : ? # % are percent-encoded (%40)"
            raise UsageError.refuse("ledger", "postgresql://…", allowed) from None

    def check(self) -> None:
        with self.translate_errors(), self._connect("door", read_only=True) as session:
            self._check(session)

    def is_absent(self) -> bool:
        return False

    def writer(self) -> Engine:
        begun: list[PgSession] = []

        def connect() -> PgSession:
            if begun:  # SQLAlchemy would replace a lost connection by a new one
                raise psycopg.OperationalError("its session is lost, and the lock with it")
            session = self._connect("scheduler", autocommit=True)
            begun.append(session)
            try:
                self._take(session)
            except BaseException:
                session.close()
                raise
            return session

        # A closed connection is not reset, because it may already be lost.
        engine = _engine(creator=connect, poolclass=NullPool, pool_reset_on_return=None)
        return begin_by(engine, "BEGIN")

    def reader(self) -> Engine:
        # One connection is kept, because a new one costs more than a query; others are temporary.
        return _engine(
            creator=lambda: self._connect("reader", read_only=True),
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=-1,
            pool_pre_ping=True,
        )

    def has_table(self, ask: Ask, name: str) -> bool:
        return value(ask, f"SELECT to_regclass('{name}')") is not None

    @contextmanager
    def transaction(self, driver: PgSession) -> Iterator[psycopg.Cursor[Any]]:
        try:
            with driver.pipeline(), driver.cursor() as cursor:
                cursor.execute("BEGIN")
                yield cursor
                cursor.execute("COMMIT")
        except BaseException:
            # A lost or silent connection has nothing to roll back.
            if not driver.closed:
                driver.rollback()
            raise

    def explain(self, error: BaseException | None) -> str:
        words = " ".join(str(error).split())
        state = getattr(error, "sqlstate", None)
        if state is None:
            return words
        return f"{_EXPLANATIONS.get(state, words)} ({state})"

    def _take(self, session: PgSession) -> None:
        """Take the writer's lock.

        Raises the error of the driver if another session holds the lock.
        """
        schema = self._check(session)
        session.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, schema))

    def _check(self, session: PgSession) -> str:
        """Return the schema that the tables are in.

        Raises BackendError if the database cannot hold a ledger.
        """
        cursor = session.execute("SELECT current_setting('server_encoding'), current_schema()")
        [(encoding, schema)] = cursor.fetchall()
        if encoding != "UTF8":
            raise self.unusable(f"its encoding is {encoding}: create a database with UTF8")
        if schema is None:
            raise self.unusable("it has no schema for tables: create the schema of its search_path")
        return str(schema)

    def _connect(self, who: str, *, read_only: bool = False, autocommit: bool = False) -> PgSession:
        """Return a new session.

        ``who`` is part of the session's name. Options in the URL take precedence.
        """
        settings = {
            "statement_timeout": STATEMENT_TIMEOUT * 1000,
            "lock_timeout": int(base.LOCK_TIMEOUT * 1000),
            "idle_in_transaction_session_timeout": STATEMENT_TIMEOUT * 1000,
            "synchronous_commit": "on",
            "default_transaction_read_only": "on" if read_only else "off",
            # Set on the server's side, so that the server notices when a client's machine is gone.
            "tcp_keepalives_idle": 10,
            "tcp_keepalives_interval": 5,
            "tcp_keepalives_count": 3,
        }
        options = [str(self._parameters.get("options", ""))]
        options += [f"-c {name}={value}" for name, value in settings.items()]
        plain: dict[str, Any] = {
            "application_name": f"penstock {who}",
            "connect_timeout": CONNECT_TIMEOUT,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 25_000,
        }
        own_options = {"client_encoding": "UTF8", "options": " ".join(options).strip()}
        options_of_url = plain | self._parameters | own_options
        return within(
            TOTAL_CONNECT_TIMEOUT,
            "ledger-connect",
            lambda: PgSession.connect(autocommit=autocommit, **options_of_url),
        )


def _engine(**options: Any) -> Engine:
    # SQLAlchemy would look for hstore at each first connection; the ledger does not use it.
    return create_engine("postgresql+psycopg://", use_native_hstore=False, **options)
