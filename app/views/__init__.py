"""Rows of the ledger as numbers and as pictures in a terminal."""
