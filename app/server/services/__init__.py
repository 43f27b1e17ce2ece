"""The processes that stay up (scheduler.

Node agent, Flower), who cleans up after them, and backups of the ledger.
"""
