"""The tables of the ledger. The table ``event`` is the truth, from which most tables are derived.

The tables ``history`` and ``adopted`` are not derived from events. All studies share these two
tables, which outlive studies and stay short.

Times are in seconds by the scheduler's clock. Parameters, metrics, specifications and cores are
JSON text.

Every change of the tables needs the next number in ``schema.HEAD``. A change may only add tables,
indexes, and columns that may be NULL or have a ``server_default``. So ``upkeep.migrate`` can add
whatever a ledger of an older version lacks.

``INTEGER`` (64 bits) and ``TEXT`` (sorted by code points) are the same on both databases.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

INTEGER = Integer().with_variant(BigInteger(), "postgresql")
TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def _digest() -> Column[int]:
    """Return the column for a row's digest (see ``digests``), the last column of every table."""
    return Column("digest", INTEGER, nullable=False, server_default="0")


METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

#: The condition of an index that contains only imports. A database uses the index only for queries
#: with the same text, so the condition contains no parameter.
IMPORTED = text("event.kind = 'StudyImported'")
_OF_IMPORTS = text("kind = 'StudyImported'")

EVENT = Table(
    "event",
    METADATA,
    Column("seq", INTEGER, primary_key=True, autoincrement=False),
    Column("study", TEXT),
    Column("trial", TEXT),
    Column("kind", TEXT, nullable=False),
    Column("at", Float, nullable=False),
    Column("body", TEXT, nullable=False),
    _digest(),
    Index(None, "trial"),
    # The index has only imports, which are few.
    Index("ix_event_imported", "study", sqlite_where=_OF_IMPORTS, postgresql_where=_OF_IMPORTS),
)

STUDY = Table(
    "study",
    METADATA,
    Column("id", TEXT, primary_key=True),
    Column("name", TEXT, nullable=False),
    Column("status", TEXT, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    Column("message", TEXT, nullable=False),
    Column("spec", TEXT, nullable=False),
    # JSON: the study's use of devices; empty if it used none.
    Column("spent", TEXT, nullable=False, server_default=""),
    # JSON: what the list of studies shows about a study that is over (``summary``); empty if the
    # study goes on, or if the summary is not written yet.
    Column("summary", TEXT, nullable=False, server_default=""),
    _digest(),
)

TRIAL = Table(
    "trial",
    METADATA,
    Column("id", TEXT, primary_key=True),
    Column("study", TEXT, ForeignKey(STUDY.c.id), nullable=False),
    Column("number", INTEGER, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("params", TEXT, nullable=False),
    Column("epoch", INTEGER, nullable=False),
    Column("target", INTEGER, nullable=False),
    Column("value", Float),
    Column("device", TEXT, nullable=False),
    Column("slot", INTEGER, nullable=False),
    # JSON: (device, slot) of each member. The columns device and slot are the first member's.
    Column("members", TEXT, nullable=False, server_default="[]"),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    Column("failure_kind", TEXT),
    Column("failure_message", TEXT),
    Column("failure_traceback", TEXT),
    Column("dispatched_at", Float),
    # JSON: the values of further objectives, and the amount by which each constraint is violated.
    Column("further", TEXT, nullable=False, server_default="[]"),
    Column("constraints", TEXT, nullable=False, server_default="{}"),
    # JSON: the knobs that differ from their defaults, as pairs.
    Column("system", TEXT, nullable=False, server_default="[]"),
    # For a forked trial: the trial whose state it continues, the epoch after which it does, the
    # trial that it replaces (empty: none), and the number in its keys if that is another trial's.
    Column("origin_trial", TEXT),
    Column("origin_epoch", INTEGER),
    Column("replaces", TEXT),
    Column("origin_keys", INTEGER),
    _digest(),
    UniqueConstraint("study", "number"),
)

EPOCH = Table(
    "epoch",
    METADATA,
    # Grows with every accepted epoch, so that a reader can ask for new epochs.
    Column("id", INTEGER, primary_key=True),
    Column("trial", TEXT, ForeignKey(TRIAL.c.id), nullable=False),
    Column("epoch", INTEGER, nullable=False),
    Column("value", Float),  # SQLite keeps NaN as NULL
    Column("metrics", TEXT, nullable=False),
    Column("state_hash", TEXT, nullable=False),
    Column("signature", TEXT, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("device", TEXT, nullable=False),
    Column("slot", INTEGER, nullable=False),
    Column("fence", INTEGER, nullable=False),
    Column("at", Float, nullable=False),
    Column("members", TEXT, nullable=False, server_default="[]"),
    Column("joules", Float),
    Column("system", TEXT, nullable=False, server_default="[]"),
    # JSON: the length of the segment that begins with this epoch, and the reason; else empty.
    Column("length", TEXT, nullable=False, server_default=""),
    Column("began", Float),
    # The trial that trained the epoch, if it was taken over from that trial; else empty.
    Column("taken_from", TEXT, nullable=False, server_default=""),
    _digest(),
    UniqueConstraint("trial", "epoch"),
)

DURABLE = Table(
    "durable",
    METADATA,
    Column("trial", TEXT, ForeignKey(TRIAL.c.id), primary_key=True),
    Column("epoch", INTEGER, primary_key=True, autoincrement=False),
    Column("state_hash", TEXT, nullable=False),
    Column("uri", TEXT, nullable=False),
    Column("at", Float, nullable=False),
    _digest(),
)

DEVICE = Table(
    "device",
    METADATA,
    Column("name", TEXT, primary_key=True),
    Column("node", TEXT, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("cores", TEXT, nullable=False),
    Column("memory", INTEGER),
    Column("slots", INTEGER, nullable=False),
    Column("uuid", TEXT),
    Column("model", TEXT, nullable=False),
    Column("incarnation", TEXT, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("at", Float, nullable=False),
    Column("reason", TEXT, nullable=False),
    # The reason why the device's energy cannot be measured; empty if it can.
    Column("unmetered", TEXT, nullable=False, server_default="nobody has looked for meters"),
    Column("seats", INTEGER, nullable=False, server_default="1"),
    _digest(),
)

COMMAND = Table(
    "command",
    METADATA,
    Column("id", TEXT, primary_key=True),
    Column("reply", TEXT, nullable=False),
    _digest(),
)

SNAPSHOT = Table(
    "snapshot",
    METADATA,
    Column("seq", INTEGER, primary_key=True, autoincrement=False),
    Column("body", TEXT, nullable=False),
    _digest(),
)

HISTORY = Table(
    "history",
    METADATA,
    Column("id", TEXT, primary_key=True),
    Column("workload", TEXT, nullable=False),
    Column("machine", TEXT, nullable=False),
    Column("source", TEXT, nullable=False),
    Column("profile", TEXT, nullable=False),
    Column("config", TEXT, nullable=False),
    Column("speedup", Float, nullable=False),
    Column("joules", Float),
    Column("windows", INTEGER, nullable=False),
    Column("at", Float, nullable=False),
    Column("infeasible", Boolean, nullable=False),
    # NULL: unknown, as in entries of 0.2.
    Column("spread", Float),
    _digest(),
    Index(None, "machine"),
)

#: The system configurations that users have pinned for workloads (see ``adopted``). The
#: configuration is NULL if the user has taken the choice back.
ADOPTED = Table(
    "adopted",
    METADATA,
    Column("workload", TEXT, primary_key=True),
    Column("machine", TEXT, primary_key=True),
    Column("config", TEXT),
    Column("at", Float, nullable=False),
    _digest(),
)

# One row: the version of Penstock that wrote here last, and its ``HEAD``. Versions older than the
# ledger read this table, so it must never change.
WRITER = Table(
    "writer",
    METADATA,
    Column("version", TEXT, primary_key=True),
    Column("schema", TEXT, nullable=False),
    _digest(),
)

#: A table with one row, the number of the ledger's schema. The name is that of Alembic's own table,
#: since Alembic made the schema up to version 0.2. The table has no digest, so it is not in
#: ``METADATA``.
REVISION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
