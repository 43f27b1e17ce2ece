"""The processes that stay up (scheduler, node agent, Flower).

Also the removal of files that are not needed any more, and backups of the ledger.
"""
