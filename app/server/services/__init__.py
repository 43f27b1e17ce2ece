"""The services (scheduler, node agent, broker and Flower), and the upkeep of their files.

The upkeep removes files that are no longer needed and makes backups of the ledger.
"""
