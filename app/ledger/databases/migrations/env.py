"""Applies the migrations on the connection that ``run.config`` was given. Alembic runs this."""

from __future__ import annotations

from alembic import context

# One transaction for all steps: a process killed between them leaves the ledger as it was.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
