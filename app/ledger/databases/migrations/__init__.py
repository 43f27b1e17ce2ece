"""The ledger's schema as Alembic migrations: ``run`` runs the steps in ``versions``."""
