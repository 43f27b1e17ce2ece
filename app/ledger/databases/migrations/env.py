"""Run by Alembic: apply the steps on the connection that ``run.config`` was given."""

from __future__ import annotations

from alembic import context

# One transaction for all steps: a process that is killed among them leaves the file as it was.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
