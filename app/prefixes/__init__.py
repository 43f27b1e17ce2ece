"""Epochs that a study's trials have in common: rows of the ledger as numbers and as a tree."""
