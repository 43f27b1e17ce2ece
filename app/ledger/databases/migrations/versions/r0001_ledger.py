"""The first schema: events, their projections, replies and snapshots."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import INTEGER, TEXT

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "event",
        sa.Column("seq", INTEGER, autoincrement=False),
        sa.Column("study", TEXT),
        sa.Column("trial", TEXT),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_event"),
    )
    op.create_index("ix_event_trial", "event", ["trial"])
    op.create_table(
        "study",
        sa.Column("id", TEXT),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("finished_at", sa.Float),
        sa.Column("message", TEXT, nullable=False),
        sa.Column("spec", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_study"),
    )
    op.create_table(
        "trial",
        sa.Column("id", TEXT),
        sa.Column("study", TEXT, nullable=False),
        sa.Column("number", INTEGER, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("params", TEXT, nullable=False),
        sa.Column("epoch", INTEGER, nullable=False),
        sa.Column("target", INTEGER, nullable=False),
        sa.Column("value", sa.Float),
        sa.Column("device", TEXT, nullable=False),
        sa.Column("slot", INTEGER, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("finished_at", sa.Float),
        sa.Column("failure_kind", TEXT),
        sa.Column("failure_message", TEXT),
        sa.Column("failure_traceback", TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_trial"),
        sa.ForeignKeyConstraint(["study"], ["study.id"], name="fk_trial_study"),
        sa.UniqueConstraint("study", "number", name="uq_trial_study"),
    )
    op.create_table(
        "epoch",
        sa.Column("id", INTEGER),
        sa.Column("trial", TEXT, nullable=False),
        sa.Column("epoch", INTEGER, nullable=False),
        sa.Column("value", sa.Float),
        sa.Column("metrics", TEXT, nullable=False),
        sa.Column("state_hash", TEXT, nullable=False),
        sa.Column("signature", TEXT, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("device", TEXT, nullable=False),
        sa.Column("slot", INTEGER, nullable=False),
        sa.Column("fence", INTEGER, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_epoch"),
        sa.ForeignKeyConstraint(["trial"], ["trial.id"], name="fk_epoch_trial"),
        sa.UniqueConstraint("trial", "epoch", name="uq_epoch_trial"),
    )
    op.create_table(
        "durable",
        sa.Column("trial", TEXT),
        sa.Column("epoch", INTEGER, autoincrement=False),
        sa.Column("state_hash", TEXT, nullable=False),
        sa.Column("uri", TEXT, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("trial", "epoch", name="pk_durable"),
        sa.ForeignKeyConstraint(["trial"], ["trial.id"], name="fk_durable_trial"),
    )
    op.create_table(
        "device",
        sa.Column("name", TEXT),
        sa.Column("node", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("cores", TEXT, nullable=False),
        sa.Column("memory", INTEGER),
        sa.Column("slots", INTEGER, nullable=False),
        sa.Column("uuid", TEXT),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("incarnation", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_device"),
    )
    op.create_table(
        "command",
        sa.Column("id", TEXT),
        sa.Column("reply", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_command"),
    )
    op.create_table(
        "snapshot",
        sa.Column("seq", INTEGER, autoincrement=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_snapshot"),
    )
