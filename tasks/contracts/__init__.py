"""The contracts of users' code: how it is found, sent and loaded, and how its loops are run."""
