"""Architectures of models, read from the ledger: as text, as boxes, and as pictures."""
