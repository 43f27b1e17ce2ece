"""Exports of studies from the ledger in the formats of other tools."""
