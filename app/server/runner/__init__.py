"""The loop around the engine, and the parts that read its messages and carry out its decisions.

The scheduler process runs this loop. Each turn receives messages, lets the engine decide, writes
the turn's events to the ledger, and then sends tasks and replies. The folder also has the modules
that ask samplers and users' policies.
"""
