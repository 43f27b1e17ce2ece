"""The contracts of users' code, and the running of code that owns its loop."""
