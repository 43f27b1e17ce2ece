"""Architectures of models as the ledger has them: in words, as boxes with places, as pictures."""
