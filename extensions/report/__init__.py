"""Rows of the ledger as one HTML page."""
