"""The first schema: events, their projections, replies and snapshots."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "event",
        sa.Column("seq", sa.Integer, autoincrement=False),
        sa.Column("study", sa.Text),
        sa.Column("trial", sa.Text),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_event"),
    )
    op.create_index("ix_event_trial", "event", ["trial"])
    op.create_table(
        "study",
        sa.Column("id", sa.Text),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("finished_at", sa.Float),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_study"),
    )
    op.create_table(
        "trial",
        sa.Column("id", sa.Text),
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("target", sa.Integer, nullable=False),
        sa.Column("value", sa.Float),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("finished_at", sa.Float),
        sa.Column("failure_kind", sa.Text),
        sa.Column("failure_message", sa.Text),
        sa.Column("failure_traceback", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_trial"),
        sa.ForeignKeyConstraint(["study"], ["study.id"], name="fk_trial_study"),
        sa.UniqueConstraint("study", "number", name="uq_trial_study"),
    )
    op.create_table(
        "epoch",
        sa.Column("id", sa.Integer),
        sa.Column("trial", sa.Text, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("value", sa.Float),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("state_hash", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_epoch"),
        sa.ForeignKeyConstraint(["trial"], ["trial.id"], name="fk_epoch_trial"),
        sa.UniqueConstraint("trial", "epoch", name="uq_epoch_trial"),
    )
    op.create_table(
        "durable",
        sa.Column("trial", sa.Text),
        sa.Column("epoch", sa.Integer, autoincrement=False),
        sa.Column("state_hash", sa.Text, nullable=False),
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("trial", "epoch", name="pk_durable"),
        sa.ForeignKeyConstraint(["trial"], ["trial.id"], name="fk_durable_trial"),
    )
    op.create_table(
        "device",
        sa.Column("name", sa.Text),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("cores", sa.Text, nullable=False),
        sa.Column("memory", sa.Integer),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("uuid", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("incarnation", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_device"),
    )
    op.create_table(
        "command",
        sa.Column("id", sa.Text),
        sa.Column("reply", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_command"),
    )
    op.create_table(
        "snapshot",
        sa.Column("seq", sa.Integer, autoincrement=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_snapshot"),
    )
