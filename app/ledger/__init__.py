"""The ledger: the scheduler's database, with all events and with tables for readers."""
