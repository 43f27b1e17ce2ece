"""Exports of the ledger's rows in other tools' formats."""
