"""Rows of the ledger in other people's formats."""
