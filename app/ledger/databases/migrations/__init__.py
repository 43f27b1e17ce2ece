"""The ledger's schema, step by step, by Alembic: ``run`` runs the steps, ``versions`` has them."""
