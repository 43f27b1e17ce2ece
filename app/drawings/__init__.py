"""Rows of the ledger as figures: plain JSON values, which report and pages draw."""
