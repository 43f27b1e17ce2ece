"""The ledger's tables. ``event`` is the truth; the others are projections of it for readers.

Times are seconds of the scheduler's clock. Params, metrics, specs and cores are JSON text. A change
here needs a migration in ``migrations/versions`` and its name in ``HEAD``.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

#: The migration that makes exactly these tables.
HEAD = "0003"

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

EVENT = Table(
    "event",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("study", Text),
    Column("trial", Text),
    Column("kind", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "trial"),
)

STUDY = Table(
    "study",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    Column("message", Text, nullable=False),
    Column("spec", Text, nullable=False),
)

TRIAL = Table(
    "trial",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("study", Text, ForeignKey(STUDY.c.id), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("params", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("target", Integer, nullable=False),
    Column("value", Float),
    Column("device", Text, nullable=False),
    Column("slot", Integer, nullable=False),
    # JSON: (device, slot) of each member; device and slot are the first one's.
    Column("members", Text, nullable=False, server_default="[]"),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    Column("failure_kind", Text),
    Column("failure_message", Text),
    Column("failure_traceback", Text),
    Column("dispatched_at", Float),
    # Of a forked trial: whose state it goes on from, after which epoch, and whose place it takes.
    Column("origin_trial", Text),
    Column("origin_epoch", Integer),
    Column("replaces", Text),
    UniqueConstraint("study", "number"),
)

EPOCH = Table(
    "epoch",
    METADATA,
    # Grows with every accepted epoch, so that a reader can ask for what is new.
    Column("id", Integer, primary_key=True),
    Column("trial", Text, ForeignKey(TRIAL.c.id), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("value", Float),  # SQLite keeps NaN as NULL
    Column("metrics", Text, nullable=False),
    Column("state_hash", Text, nullable=False),
    Column("signature", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("device", Text, nullable=False),
    Column("slot", Integer, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("members", Text, nullable=False, server_default="[]"),
    UniqueConstraint("trial", "epoch"),
)

DURABLE = Table(
    "durable",
    METADATA,
    Column("trial", Text, ForeignKey(TRIAL.c.id), primary_key=True),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("state_hash", Text, nullable=False),
    Column("uri", Text, nullable=False),
    Column("at", Float, nullable=False),
)

DEVICE = Table(
    "device",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("node", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("cores", Text, nullable=False),
    Column("memory", Integer),
    Column("slots", Integer, nullable=False),
    Column("uuid", Text),
    Column("model", Text, nullable=False),
    Column("incarnation", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("reason", Text, nullable=False),
)

COMMAND = Table(
    "command",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("reply", Text, nullable=False),
)

SNAPSHOT = Table(
    "snapshot",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)
