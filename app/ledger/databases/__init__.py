"""The databases that hold a ledger: tables, digests, SQLite, PostgreSQL, older ledgers."""
