"""Processes that the scheduler asks: users' policies, and the history of tuned parameters."""
