"""Rows of the ledger as numbers and as tables in a terminal."""
