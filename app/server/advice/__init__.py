"""Processes that the scheduler asks for plans of users' policies."""
